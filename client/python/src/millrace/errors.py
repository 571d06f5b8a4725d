"""What goes wrong, in the three classes that Millrace knows.

Messages name who waited for what from whom, and include the service's message.
"""

from __future__ import annotations

import re


class Error(Exception):
    """Base of all errors of this package.

    ``code`` is the name of the gRPC status, "" if the error arose on this side.
    """

    code: str = ""


class UserError(Error):
    """The spec, the data or a call is wrong; the message says what to change."""


class MovedError(UserError):
    """The job was moved to another step, without this rank: restart all from one checkpoint.

    The text says who moved it. It is raised as soon as the service says so, whatever was
    prefetched.
    """


class LostError(Error):
    """A machine, process or network went away, and stayed away for ``timeout``.

    Trying again is safe: requests name a position, so nothing is lost or doubled.
    """


class WaitError(LostError):
    """A call has waited for as long as it may; the text names who waits for whom.

    ``waited`` and ``idle`` are seconds: since the call was made, and for which nothing has moved
    anywhere in the service. ``ranks``: other ranks were waited for, not the service; ``timeout``
    ended the call, not ``stall_timeout``. ``chain``: who waits for whom, down to the file, as the
    service said last, a line for each of its parts.
    """

    waited: float = 0.0
    idle: float = 0.0
    ranks: bool = False
    chain: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, who: str, what: str, waited: float, idle: float, ranks: bool, chain: list[str]
    ) -> WaitError:
        """Returns the error of a rank."""
        moved = "other ranks are waited for" if ranks else f"nothing has moved for {idle:.0f} s"
        told = "; ".join(chain) or "nobody has answered"
        error = cls(f"{who} has waited {waited:.0f} s for {what}, and {moved}: {told}")
        error.waited, error.idle, error.ranks, error.chain = waited, idle, ranks, tuple(chain)
        return error


class TopologyChanged(Error):
    """The data goes on at ``step``, for the ranks of another mesh: ``topology``, sizes by axis.

    Not a failure. Save state_dict(), which is that of ``step``, and the model; end this
    trainer; start one of the new mesh, and load the state there. All ranks of the old
    mesh get this at the same step, in place of the end of data.
    """

    # The text is all that comes through a DataLoader's worker, so it says everything.
    MESH = r"[a-z]+\d+(?: [a-z]+\d+)*"
    TEXT = re.compile(rf"the topology changes at step (\d+) to ({MESH}):")

    def __init__(self, text: str) -> None:
        """Text is that of at(), or a traceback that holds it."""
        super().__init__(text)
        step, mesh = self.TEXT.findall(text)[-1]
        self.step = int(step)
        self.topology = {axis: int(n) for axis, n in re.findall(r"([a-z]+)(\d+)", mesh)}

    @classmethod
    def at(cls, step: int, mesh: str) -> TopologyChanged:
        """Returns the error of a step; mesh is the service's text, as "tp2 cp1 dp4 pp2"."""
        if not re.fullmatch(cls.MESH, mesh):
            raise BugError(f"step {step} has the topology {mesh!r}")
        return cls(
            f"the topology changes at step {step} to {mesh}: save the state, and start "
            "the ranks of that mesh from it"
        )


class BugError(Error):
    """An invariant of the service or of this client is broken: please report it."""


def with_code(error: Error, code: str) -> Error:
    """Returns error with its gRPC status noted."""
    error.code = code
    return error
