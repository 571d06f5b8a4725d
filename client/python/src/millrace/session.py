"""A rank's session with the service: joined at one position, then asked for steps.

The session knows addresses, generations and retries; it keeps no batch and
decides no order. Its methods may be called from several threads.

Requests name a step, so all are repeated freely. A request that fails twice in
a row, or that the service calls stale (ABORTED), joins again first: the planner
then names the current constructor and generation.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import grpc

from millrace import messages, rpc
from millrace.access import Access, Channel
from millrace.config import AXES, BEGINNING, Config, Mesh
from millrace.errors import BugError, Error, LostError, UserError, with_code
from millrace.receive import Step, receive
from millrace.wire import Message, WireError

M = TypeVar("M", bound=Message)

# Seconds that an acknowledgement may take: its answer waits for nothing.
ACK_TIME = 10.0

# Seconds of waiting after which a trainer logs what the service waits for, and between two
# such lines. Ranks that are started together need less.
WAIT_LOG_AFTER, WAIT_LOG_EVERY = 10.0, 60.0

# Seconds that the service's status may take.
STATUS_TIME = 5.0

# Tokens kept by step: one per recent checkpoint, a few KB each.
TOKENS_KEPT = 16


def check_protocol(theirs: int, what: str) -> None:
    """Raises UserError for a service of another version, and says which side to upgrade."""
    ours = messages.PROTOCOL
    if theirs == ours:
        return
    older, newer = ("service", "client") if theirs < ours else ("client", "service")
    raise UserError(
        f"{what}: the {older} is older than the {newer} (protocol {max(theirs, 1)} of the "
        f"service, {ours} of this client): upgrade the {older}"
    )


class Session:
    """See the module. ``token`` is where to start (empty: the beginning), ``step`` its step."""

    def __init__(self, config: Config, token: bytes, step: int | None) -> None:
        self.config = config
        self.acked = step or 0  # steps the trainer is done with
        self.told = self.acked  # of these, what the service knows
        self.carried = self.acked  # and what the last request for a step took along
        self.lost: LostError | None = None  # the last one of the step under way
        self.retries = 0
        self.tokens: dict[int, bytes] = {} if step is None else {step: token}
        self._start = (token, step)
        self._closed = threading.Event()
        self._joining = threading.Lock()
        self._reply: messages.JoinReply | None = None
        self._stale = True
        self._channels: dict[str, Channel] = {}
        self._access = Access(config.address, config.access_key_file, config.tls.used())
        self._guard = threading.Lock()  # of _channels, acked and told

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        """Ends every call under way with rpc.Closed. Idempotent."""
        self._closed.set()
        if rpc.forked():
            return  # the connections belong to the parent
        with self._guard:
            channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()

    # ---- join ----

    @property
    def has_joined(self) -> bool:
        return self._reply is not None

    def joined(self, until: float | None) -> messages.JoinReply:
        """Returns the answer to Join, asking for it first if nobody did."""
        return self._reply or rpc.retry(self._joined, self._closed, until, self._note)

    def _joined(self, seconds: float) -> messages.JoinReply:
        if not self._joining.acquire(timeout=seconds):
            raise self.lost or LostError(f"{self.config.who()} is still joining")
        try:
            if self._stale or self._reply is None:
                self._reply = self._join(seconds)
                self._stale = False
            return self._reply
        finally:
            self._joining.release()

    def _join(self, seconds: float) -> messages.JoinReply:
        request = messages.JoinRequest(
            job=self.config.job,
            identity=self.config.identity,
            rank=self._coordinates(),
            mesh=self._mesh_given(),
            token=self._join_token(seconds),
            protocol=messages.PROTOCOL,
        )
        if self.config.start == BEGINNING and not request.token:  # later it goes on where it is
            request.start = messages.START_BEGINNING
        what = f"{self.config.who()} joining at {self.config.address}"
        reply = self._planner("Join", request, messages.JoinReply, seconds, what)
        self._check(reply, what)
        self.tokens.setdefault(reply.next_step, reply.token)
        if self._reply is None:
            self.advance(reply.next_step)
            self._tell(reply.next_step)
        return reply

    def _check(self, reply: messages.JoinReply, what: str) -> None:
        check_protocol(reply.protocol, what)
        if self._reply is not None:
            if self._reply.identity != reply.identity:
                raise UserError(f"{what}: the service now serves another job, {reply.job}")
            return
        self.config.check_mesh(Mesh.of(reply.mesh))
        token, step = self._start
        if token and step != reply.next_step:
            raise UserError(
                f"{what}: the state says step {step}, but its token is that of step "
                f"{reply.next_step}: load a state as state_dict() returned it"
            )
        if not token and step:
            raise UserError(f"{what}: the state says step {step}, but it has no token")

    def _join_token(self, seconds: float) -> bytes:
        """Returns the token of the last returned position.

        Never an older one: joining with that would move the whole job back.
        """
        if self._reply is None:
            return self._start[0]
        return self.tokens.get(self.acked) or self._fetch_token(self.acked, seconds)

    # ---- state ----

    def state(self, step: int, until: float | None) -> bytes:
        """Returns the resume token of the position after ``step`` steps."""
        if step not in self.tokens:
            self.joined(until)

        def attempt(seconds: float) -> bytes:
            return self.tokens.get(step) or self._fetch_token(step, seconds)

        return rpc.retry(attempt, self._closed, until, self._note)

    def _fetch_token(self, step: int, seconds: float) -> bytes:
        assert self._reply is not None
        what = f"{self.config.who()} asking {self.config.address} for the state of step {step}"
        request = messages.StateRequest(identity=self._reply.identity, step=step)
        reply = self._planner("State", request, messages.StateReply, seconds, what)
        if not reply.token:
            raise BugError(f"{what}: the answer has no token")
        self.tokens[step] = reply.token
        for old in sorted(list(self.tokens))[:-TOKENS_KEPT]:
            self.tokens.pop(old, None)
        return reply.token

    # ---- feedback ----

    def report(self, request: messages.ReportRequest, until: float) -> None:
        """Sends a report, whether joined or not: joining would move the job."""
        request.identity = self._reply.identity if self._reply else self.config.identity
        request.rank = self._coordinates()
        who = self.config.who()
        what = f"{who} reporting step {request.step} to {self.config.address}"

        def attempt(seconds: float) -> None:
            self._planner("Report", request, messages.ReportReply, seconds, what)

        rpc.retry(attempt, self._closed, until, lambda _: None)

    # ---- batches ----

    def batch(self, step: int, until: float | None) -> Step:
        """Returns this rank's part of ``step``; waits until it is there."""
        failures = 0

        def on_lost(error: LostError) -> None:
            nonlocal failures
            failures += 1
            self._stale = self._stale or failures >= 2 or error.code == "ABORTED"
            self._note(error)

        def attempt(seconds: float) -> Step:
            return self._batch(step, self._joined(seconds), seconds)

        received = rpc.retry(attempt, self._closed, until, on_lost)
        self.lost = None
        return received

    def _batch(self, step: int, reply: messages.JoinReply, seconds: float) -> Step:
        if not reply.fetches:
            raise UserError(
                f"{self.config.who()} fetches nothing: the job broadcasts from another rank "
                "(output.broadcast_at). Give this rank no iterator"
            )
        what = f"{self.config.who()} waiting for step {step} from {self.source()}"
        request = messages.BatchRequest(
            identity=reply.identity,
            generation=reply.generation,
            step=step,
            acked=min(self.acked, step),
            rank=self._coordinates(),
            join=reply.join,
        )
        call = self._ask(reply.constructor, request, seconds, what)
        self.carried = request.acked
        try:
            received = receive(self._frames(call, what), step)
        except BugError as error:
            raise with_code(BugError(f"{what}: {error}"), error.code) from error
        finally:
            call.cancel()  # a no-op once the stream is at its end
        self._tell(request.acked)
        return received

    def _ask(self, address: str, request: Message, seconds: float, what: str) -> Any:
        with self._guard:
            method = self._channel(address).unary_stream(messages.CONSTRUCTOR + "Batch")
        try:
            return method(request.encode(), timeout=seconds)
        except ValueError as error:
            raise rpc.Closed(f"{what}: {error}") from None

    def _frames(self, call: Any, what: str) -> Iterator[bytes]:
        try:
            yield from call
        except grpc.RpcError as error:
            if self.closed:
                raise rpc.Closed(f"{what}: the loader was closed") from None
            raise rpc.classify(error, what) from None

    # ---- acknowledgements ----

    def advance(self, acked: int) -> None:
        """Notes that the trainer is done with all steps before ``acked``.

        Every request says so, and acknowledge().
        """
        with self._guard:
            self.acked = max(self.acked, acked)

    def acknowledge(self, acked: int) -> None:
        """Tells the service how far the trainer is. Raises LostError if it did not hear."""
        reply = self._reply
        if reply is None:
            raise LostError(f"{self.config.who()} has not joined")
        request = messages.AckRequest(
            identity=reply.identity,
            generation=reply.generation,
            acked=acked,
            rank=self._coordinates(),
            join=reply.join,
        )
        what = f"{self.config.who()} acknowledging step {acked} to {self.source()}"
        with self._guard:
            channel = self._channel(reply.constructor)
        method = messages.CONSTRUCTOR + "Ack"
        rpc.call_unary(channel, method, request.encode(), ACK_TIME, what)
        self._tell(acked)

    def _tell(self, acked: int) -> None:
        with self._guard:
            self.told = max(self.told, acked)

    def source(self) -> str:
        """Names who serves batches, for messages."""
        reply = self._reply
        if reply is None:
            return (
                f"the service at {self.config.address} (not joined yet: is it running there, "
                "and with the same TLS settings?)"
            )
        return f"the constructor at {reply.constructor or self.config.address}"

    # ---- waiting ----

    def late(self, seconds: float, what: str) -> str:
        """Returns the message of a trainer that has waited."""
        cause = f"; last error: {self.lost}" if self.lost else ""
        waited = f"{self.config.who()} has waited {seconds:.0f} s for {what}"
        return f"{waited} from {self.source()}{cause}"

    def log_wait(self, seconds: float, what: str) -> None:
        """Logs that the trainer has waited, and what the service waits for, if that is known."""
        why = ""
        with contextlib.suppress(Error, ValueError, KeyError):
            asking = f"{self.config.who()} asking {self.config.address} for its status"
            request = messages.StatusRequest()
            reply = self._planner("Status", request, messages.StatusReply, STATUS_TIME, asking)
            why = f"; the service waits for {json.loads(reply.json)['waiting_for']}"
        if not self.closed:
            rpc.log.warning("%s%s", self.late(seconds, what), why)

    @contextlib.contextmanager
    def logged(self, what: str) -> Iterator[None]:
        """Logs what the service waits for if what is done inside takes long."""
        timer = threading.Timer(WAIT_LOG_AFTER, self.log_wait, (WAIT_LOG_AFTER, what))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    # ---- plumbing ----

    def _note(self, error: LostError) -> None:
        self.lost = error
        self.retries += 1

    def _planner(
        self, method: str, request: Message, reply: type[M], seconds: float, what: str
    ) -> M:
        with self._guard:
            channel = self._channel(self.config.address)
        raw = rpc.call_unary(channel, messages.PLANNER + method, request.encode(), seconds, what)
        try:
            return reply.decode(raw)
        except WireError as error:
            raise BugError(f"{what}: reading the answer: {error}") from error

    def _channel(self, address: str) -> Channel:
        """Returns the channel to address; _guard is held."""
        if self.closed:
            raise rpc.Closed("the loader was closed")
        address = address or self.config.address
        if address not in self._channels:
            self._channels[address] = rpc.open_channel(address, self.config.tls, self._access)
        return self._channels[address]

    def _coordinates(self) -> messages.Coordinates:
        ranks = [self.config.axis(axis).rank or 0 for axis in AXES]
        return messages.Coordinates(*ranks)

    def _mesh_given(self) -> messages.Mesh:
        dp, cp, pp, tp = (self.config.axis(axis).size or 0 for axis in AXES)
        return messages.Mesh(dp, cp, pp, tp, self.config.vpp_size or 0)
