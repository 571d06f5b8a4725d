"""What goes wrong, in the three classes that Millrace knows.

Messages say who waited for what from whom, and carry the service's own words.
"""

from __future__ import annotations


class Error(Exception):
    """Base of all errors of this package.

    ``code`` is the name of the gRPC status, "" if the error arose on this side.
    """

    code: str = ""


class UserError(Error):
    """The spec, the data or a call is wrong: change what the message says."""


class LostError(Error):
    """A machine, process or network went away, and stayed away for ``timeout``.

    Trying again is safe: requests name a position, so nothing is lost or doubled.
    """


class BugError(Error):
    """A promise of the service or of this client is broken: please report it."""


def with_code(error: Error, code: str) -> Error:
    """Returns error with its gRPC status noted."""
    error.code = code
    return error
