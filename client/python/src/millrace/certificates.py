"""The TLS files of this process: read again when they have changed, checked before they are used.

A certificate that is renewed on disk counts for all channels that are opened from then on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import threading
import time
from typing import Any, Optional

from millrace.config import TLS
from millrace.errors import UserError

log = logging.getLogger("millrace")

Stamp = tuple[Optional[tuple[int, int, int]], ...]

# Flags of OpenSSL that not all versions of Python name: a certificate that is no authority may end
# a chain, and dates are not looked at.
PARTIAL_CHAIN, ANY_TIME = 0x80000, 0x200000

# Seconds before the end of a certificate from which on that is said, and the part of its life if
# that is less: as the roles do (internal/rpc/certificate.go).
MARGIN, SHARE = 7 * 86400.0, 1 / 6

# Seconds that a look at what is spoken at an address may take.
LOOK = 1.0


class Files:
    """The files of a TLS, the same object for all channels of this process that use them."""

    def __init__(self, tls: TLS) -> None:
        self.tls = tls
        self.met = False  # another side has accepted them: what fails from now on may pass
        self._guard = threading.Lock()  # of all below
        self._held: tuple[bytes | None, bytes | None, bytes | None] | None = None
        self._seen: Stamp = ()
        self._problem = ""
        self._ends = (0.0, 0.0)  # of the certificate: when that is said, and when it ends
        self._said = 0

    def read(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Returns authority, key and certificate.

        Raises UserError for files that are at fault at first: gRPC would try for ever with them.
        Later ones may be half written, and what they held before counts.
        """
        with self._guard:
            stamp = self.stamp()
            if self._held is None:
                self._take(stamp)
            elif stamp != self._seen:
                try:
                    self._take(stamp)
                except UserError as error:
                    if str(error) != self._problem:
                        log.warning("the TLS files have changed and are not used: %s", error)
                    self._problem = str(error)
            self._warn()
            assert self._held is not None
            return self._held

    def stamp(self) -> Stamp:
        """Returns what tells files from those that take their place."""
        return tuple(_stamp(path) for path in self.tls)

    def _take(self, stamp: Stamp) -> None:
        ends = _check(self.tls)
        ca, cert, key = (_read(path) for path in self.tls)
        self._held, self._seen, self._ends = (ca, key, cert), stamp, ends
        self._problem, self._said = "", 0

    def _warn(self) -> None:
        near, end = self._ends
        now = time.time()
        if not end or self._said >= 2 or now < near:
            return
        if now >= end:
            self._said = 2
            log.error("the TLS certificate %s has ended: %s", self.tls.cert, _date(end))
        elif not self._said:
            self._said = 1
            log.warning("the TLS certificate %s ends soon: %s", self.tls.cert, _date(end))


_all: dict[TLS, Files] = {}


def files_of(tls: TLS) -> Files:
    """Returns the files of this process that a TLS names."""
    return _all.setdefault(tls, Files(tls))


def refusal(address: str, tls: TLS) -> str | None:
    """Returns what one who takes TLS says of these files; "" if nothing, None if none is there.

    It asks on a connection of its own, as gRPC does not tell. It says and believes nothing there.
    """
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    said = None
    try:
        if tls.cert and tls.key:
            context.load_cert_chain(tls.cert, tls.key, password="")
        raw = socket.create_connection((host.strip("[]"), int(port)), LOOK)
        with raw, context.wrap_socket(raw, server_hostname=host.strip("[]")) as connection:
            said = ""
            connection.recv(1)
    except ssl.SSLError as error:
        return said if said is None else str(error)
    except (OSError, ValueError):
        pass
    return said


def _check(tls: TLS) -> tuple[float, float]:
    """Raises UserError for files that are no TLS material, or that nobody would accept.

    Returns when it is to be said that the certificate ends, and when that is; 0 without one.
    """
    what = f"the TLS file {tls.ca}"
    try:
        if tls.ca:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(tls.ca)
        if not tls.cert or not tls.key:
            return 0.0, 0.0
        what = f"the TLS files {tls.cert} and {tls.key}"
        ours, theirs = (
            ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
        )
        for context in ours, theirs:
            context.load_cert_chain(tls.cert, tls.key, password="")
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise UserError(
            f"reading {what}: {error}: give PEM files, a key beside its certificate, "
            "without a passphrase"
        ) from None
    ours.load_verify_locations(tls.cert)  # what it holds is to be read, whoever has signed it
    ours.verify_mode = ssl.CERT_REQUIRED
    ours.verify_flags |= ssl.VerifyFlags(PARTIAL_CHAIN | ANY_TIME)
    theirs.check_hostname, theirs.verify_mode = False, ssl.CERT_NONE
    shown = _shown(ours, theirs)
    begin, end = (ssl.cert_time_to_seconds(shown[key]) for key in ("notBefore", "notAfter"))
    now = time.time()
    if not begin <= now <= end:
        raise UserError(
            f"the TLS certificate {tls.cert} is valid from {_date(begin)} to {_date(end)}, and "
            f"now it is {_date(now)}: renew it, or set the clock"
        )
    return end - min(MARGIN, (end - begin) * SHARE), end


def _shown(ours: ssl.SSLContext, theirs: ssl.SSLContext) -> dict[str, Any]:
    """Returns the certificate that one side shows to the other, in memory."""
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    server, client = ours.wrap_bio(one, other, server_side=True), theirs.wrap_bio(other, one)
    for side in (client, server) * 2:
        with contextlib.suppress(ssl.SSLWantReadError):  # it is the other side's turn
            side.do_handshake()
    return server.getpeercert() or {}


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path or "")
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: str | None) -> bytes | None:
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
