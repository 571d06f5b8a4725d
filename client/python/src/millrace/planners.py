"""The planners of a job, of which a rank asks one at a time.

Only one of them plans. The others stand by, or plan no more and do not know it: each answer has
the planner's epoch, and one of a lower epoch than was heard of counts as lost. A planner that is
late is asked what it waits for.
"""

from __future__ import annotations

import time
from typing import Any, Callable, NamedTuple, TypeVar, Union

from millrace import messages, rpc
from millrace.access import Access, Channel
from millrace.config import TLS, check_path
from millrace.connections import Connections
from millrace.errors import BugError, Error, LostError, UserError, WaitError, with_code
from millrace.waiting import Progress
from millrace.wire import Message, WireError

M = TypeVar("M", bound=Message)

# What the planners are asked, and say: it has epochs.
Asking = Union[
    messages.JoinRequest, messages.StateRequest, messages.ChangeRequest, messages.ReportRequest
]
A = TypeVar(
    "A", messages.JoinReply, messages.StateReply, messages.ChangeReply, messages.ReportReply
)

# Seconds that the service's status may take.
STATUS_TIME = 5.0

# Seconds after which a planner that does not answer is asked what it waits for, and between two
# such questions; and what one may take.
WHY_AFTER, WHY_EVERY, WHY_TIME = 1.0, 3.0, 2.0
# Seconds that one may take on a connection on which nothing came, once another one has answered.
AGAIN_TIME = 0.5

# What a question ends with to which nothing came.
NOTHING_CAME = ("DEADLINE_EXCEEDED", "UNAVAILABLE")


class Caller(NamedTuple):
    """What a question calls of who asks it. What they raise ends it."""

    check_wait: Callable[[], None]  # is called each second; WaitError: it waits no longer
    refused: Callable[[UserError], None]  # takes a refusal; LostError: to be asked again


class Planners:
    """See the module. ``epoch`` is the highest that was heard of. Safe for several threads."""

    def __init__(
        self, addresses: list[str], connections: Connections, progress: Progress, caller: Caller
    ) -> None:
        self.epoch = 0
        self._addresses, self._connections = addresses, connections
        self._progress, self._caller = progress, caller
        self._at = 0  # of _addresses, modulo their number: which one answered last
        self._refused = 0  # answers of lower epochs, since a planner last heard of it

    @property
    def current(self) -> str:
        """The address of the planner that answered last."""
        return self._addresses[self._at % len(self._addresses)]

    def ask(self, method: str, request: Asking, reply: type[A], seconds: float, what: str) -> A:
        """Asks the planner that answered last and, while that is lost, the others in turn.

        The answer of one whose place another one took is lost, too.
        """
        count = len(self._addresses)
        for left in range(count, 0, -1):
            at = self._at
            address = self._addresses[at % count]
            request.epoch, request.stale_refused = self.epoch, self._refused
            try:
                answer = self._ask_one(address, method, request, reply, seconds / left, what)
                self._take(answer, what)
                self._refused = max(self._refused - request.stale_refused, 0)
                self._progress.answered(_name(address))
                return answer
            except WaitError:
                raise
            except LostError as error:
                self._progress.lost(_name(address), error)
                if self._at == at:
                    self._at += 1
                if left == 1:
                    raise
        raise AssertionError("there is no planner")

    def status(self, what: str) -> bytes:
        """Returns the job's status as JSON, as the planner that answered last has it."""
        request, reply = messages.StatusRequest(), messages.StatusReply
        return self._ask_one(self.current, "Status", request, reply, STATUS_TIME, what).json

    def _take(self, answer: Any, what: str) -> None:
        """Notes the epoch of an answer. Raises LostError for one that is over."""
        if answer.epoch < self.epoch:
            self._refused += 1
            if answer.epoch == 0:
                raise LostError(
                    f"{what}: the planner keeps no log, has not opened it, or failed: see what it "
                    f"logs, or `millrace status` (the planner before it had epoch {self.epoch})"
                )
            raise LostError(
                f"{what}: the planner is of epoch {answer.epoch}, and another one took "
                f"over with epoch {self.epoch}"
            )
        self.epoch = answer.epoch

    def _ask_one(
        self, address: str, method: str, request: Message, reply: type[M], secs: float, what: str
    ) -> M:
        """Asks one planner, and while that does not answer, what it waits for."""
        until = time.monotonic() + secs
        while True:
            channel = self._connections.to(address, address)
            left = max(until - time.monotonic(), 0.001)
            try:
                raw = self._ask_on(channel, address, method, request, left, what)
                break
            except UserError as error:
                self._caller.refused(error)
                raise
            except WaitError:
                raise
            except LostError:
                if not channel.dropped or time.monotonic() >= until:
                    raise
        try:
            return reply.decode(raw)
        except WireError as error:
            raise BugError(f"{what}: reading the answer: {error}") from error

    def _ask_on(
        self, channel: Channel, address: str, method: str, request: Message, secs: float, what: str
    ) -> bytes:
        """Asks a planner on a channel, which is dropped if another one shows that it is dead."""
        due = WHY_AFTER

        def look(passed: float) -> None:
            nonlocal due
            if passed >= due:
                due = passed + WHY_EVERY
                if not self._ask_why(channel, _name(address), WHY_TIME):
                    self._replace(channel, address, what)
            self._caller.check_wait()

        method = messages.PLANNER + method
        return rpc.call_watched(channel, method, request.encode(), secs, what, look)

    def _ask_why(self, channel: Channel, who: str, seconds: float) -> bool:
        """Asks a planner what it waits for. Returns False if nothing came in answer."""
        why, request = messages.PLANNER + "Why", messages.WhyRequest().encode()
        try:
            raw = rpc.call_unary(channel, why, request, seconds, "asking why")
            waits = messages.Waiting.decode(raw)
        except rpc.Closed:
            raise
        except UserError as error:
            if error.code == "UNIMPLEMENTED":  # it is there, and does not know the question
                self._progress.hear(who, "", 0, False)
        except (Error, WireError) as error:
            self._progress.lost(who, error)
            return error.code not in NOTHING_CAME if isinstance(error, Error) else True
        else:
            self._progress.hear(who, waits.reason, waits.idle_ms / 1000, waits.ranks)
        return True

    def _replace(self, silent: Channel, address: str, what: str) -> None:
        """Opens another connection to a planner that said nothing on this one.

        If it answers there, the silent one is dropped, and LostError is raised: whoever asked
        asks on the new one. If it does not, it is the planner that says nothing.
        """
        if self._connections.to(address, address) is silent:
            made, taken = self._connections.another(address), False
            try:
                answers = self._ask_why(made, _name(address), WHY_TIME)
                # One that has come to itself meanwhile answers here, too.
                if not answers or self._ask_why(silent, _name(address), AGAIN_TIME):
                    return
                taken = self._connections.replace(address, silent, made)
            finally:
                if not taken:
                    made.close()
        silent.drop()
        raise with_code(LostError(f"{what}: {rpc.DROPPED}"), "UNAVAILABLE")


def _name(address: str) -> str:
    return f"the planner at {address}"


def serving(addresses: str, tls: TLS, access_key_file: str | None, seconds: float) -> str:
    """Returns the address of several at which the planner answers; a single one is not asked.

    At the others somebody waits to take its place, without a word. What asking again does not
    mend is said before that nobody is there.
    """
    found = [one.strip() for one in addresses.split(",")]
    if len(found) == 1:
        return found[0]
    tls.check()
    check_path("access_key_file", access_key_file)
    method, request = messages.PLANNER + "Status", messages.StatusRequest().encode()
    failed: Error = LostError("nobody was asked")
    for one in found:
        channel = rpc.open_channel(one, tls, Access(one, access_key_file, tls.used()))
        try:
            what = f"asking {one} for its status"
            rpc.call_unary(channel, method, request, min(seconds, STATUS_TIME), what)
            return one
        except (LostError, UserError) as error:
            if not isinstance(failed, UserError):
                failed = error
        finally:
            channel.close()
    raise failed
