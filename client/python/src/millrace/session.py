"""A rank's session with the service: joined at one position, then asked for steps.

The session knows its place, generations and retries; it keeps no batch and
decides no order. Its methods may be called from several threads.

Requests name a step, so all are repeated freely. A request that fails twice in
a row, or that the service calls stale (ABORTED), joins again first, at the
trainer's position: the planner then names the current constructor and
generation. While there is no planner, the constructor is asked on.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from millrace import messages, rpc
from millrace.access import Channel
from millrace.attention import Attention
from millrace.backoff import Backoff
from millrace.config import AXES, BEGINNING, CALLS, SHARED, Config, Mesh
from millrace.connections import Connections
from millrace.errors import BugError, Error, LostError, MovedError, UserError, WaitError, with_code
from millrace.planners import Caller, Planners
from millrace.receive import Step, receive
from millrace.shared import SHARE_TIME, Line, Unshared, Untaken, ticket_of
from millrace.stages import elsewhere
from millrace.stream import DELIVER, SILENT, SILENT_TEXT, Position, Stream
from millrace.table import Choice
from millrace.waiting import Progress, Stood, Wait
from millrace.wire import Message

# Seconds that an acknowledgement may take: its answer waits for nothing. If a constructor is
# silent for that long, the next call goes to the one that serves the rank by then.
ACK_TIME = 1.0

# Times in a row that a constructor cannot be reached, after which the rank says so when it joins
# again: it joins after two, and may be sent to the same one.
UNREACHED = 3

# Seconds of waiting after which a trainer logs what the service waits for, and between two
# such lines. Ranks that are started together need less.
WAIT_LOG_AFTER, WAIT_LOG_EVERY = 10.0, 60.0

# Seconds that the first attempt to join again may take, and by which each later one may take
# longer. A planner that is there answers in less, unless it waits for others.
REJOIN_TIME = 10.0

# Seconds that a join may be under way that its rank has given up, and that steps which were sent
# to the rank before may lie where it reads them: far more than either takes.
DOUBT_TIME = 600.0

# The codes with which a constructor answers a call that it does not know; the second one under TLS.
UNKNOWN = ("UNIMPLEMENTED", "PERMISSION_DENIED")
# How a server refuses a rank of another service.
OTHER_SERVICE = ("UNAUTHENTICATED", "UNIMPLEMENTED", rpc.HTTP)

# Tokens kept by step: one per recent checkpoint, a few KB each.
TOKENS_KEPT = 16


def check_protocol(theirs: int, what: str) -> None:
    """Raises UserError for a version that this client does not speak, and says what to upgrade."""
    oldest, newest = messages.OLDEST, messages.PROTOCOL
    if oldest <= theirs <= newest:
        return
    older, newer = ("service", "client") if theirs < oldest else ("client", "service")
    raise UserError(
        f"{what}: the {older} is older than the {newer} (the service speaks protocol "
        f"{max(theirs, 1)}, this client {oldest} to {newest}): upgrade the {older}"
    )


class Session:
    """See the module. ``token`` is where to start (empty: the beginning), ``step`` its step."""

    def __init__(self, config: Config, token: bytes, step: int | None) -> None:
        self.config, self._who = config, config.who()
        self.acked = step or 0  # steps the trainer is done with
        self.told = self.acked  # of these, what the service knows
        self.carried = self.acked  # and what the last request for a step took along
        self.lost: LostError | None = None  # the last one of the step under way
        self.retries = 0
        self.stood = Stood()
        self.tokens: dict[int, bytes] = {} if step is None else {step: token}
        self._start = (token, step)
        self._closed = threading.Event()
        self._joining = threading.Lock()
        self._attention = Attention()
        self.progress = Progress()
        self._calls = threading.local()  # wait: the Wait of the trainer's call in this thread
        self._reply: messages.JoinReply | None = None
        self._along = (0, 0)  # the generation taken along into since _reply, and its first step
        self._stale = True
        self._elsewhere = False  # the constructor said that the rank has to join again
        self._doubt = 0.0  # when a join was lost, which may have made the one before void
        self._silent = ""  # the constructor that said nothing since the last step
        self._rejoins = 0  # attempts in a row
        planners = [one.strip() for one in config.address.split(",")]
        self._connections = Connections(config, planners, self._closed)
        caller = Caller(self._check_wait, self._check_taken)
        self._planners = Planners(planners, self._connections, self.progress, caller)
        self._until = 0  # steps before it may come
        self._stream: Stream | Line | None = None
        self._unshared: tuple[messages.JoinReply | None, str] = (None, "")  # a join, and why
        self._callers: set[str] = set()  # constructors that know no streams
        self._guard = threading.Lock()  # of acked, told, _until and _stream

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        """Ends every call under way with rpc.Closed. Idempotent."""
        self._closed.set()
        if rpc.forked():
            return  # the connections belong to the parent
        self._attention.close()
        self._drop_stream()
        self._connections.close()

    # ---- join ----

    @property
    def has_joined(self) -> bool:
        return self._reply is not None

    def joined(self, until: float | None) -> messages.JoinReply:
        """Returns the answer to Join, asking for it first if nobody did."""
        if self._reply is not None:
            return self._reply
        if until is None:  # nobody waits for it yet
            return rpc.retry(self._joined, Backoff(self._who), self._closed, until, self._note)
        with self.logged("its place in the job", until):
            return rpc.retry(self._joined, Backoff(self._who), self._closed, until, self._note)

    def _joined(self, seconds: float) -> messages.JoinReply:
        if not self._acquire_joining(seconds):
            raise self.lost or LostError(f"{self._who} is still joining")
        try:
            if self._reply is None:
                self._reply = self._join(self._join_request(), seconds)
                self._stale = False
            elif self._stale:
                self._rejoin(self._reply, seconds)
            return self._reply
        finally:
            self._joining.release()

    def _acquire_joining(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self._joining.acquire(timeout=max(min(until - time.monotonic(), rpc.LOOK), 0)):
            self._check_wait()
            if time.monotonic() >= until:
                return False
        return True

    def _rejoin(self, before: messages.JoinReply, seconds: float) -> None:
        """Joins again. Without a planner the constructor is asked on, unless it has refused."""
        self._rejoins += 1
        self._doubt = time.monotonic()
        try:
            reply = self._join_here(before, min(seconds, self._rejoins * REJOIN_TIME))
        except LostError as error:
            if self._elsewhere:
                raise
            self._note(error)
            return
        with self._guard:
            self._reply, self._along = reply, (0, 0)
        self._stale = self._elsewhere = False
        self._doubt, self._rejoins = 0.0, 0

    def _join_request(self) -> messages.JoinRequest:
        """Returns the request of the first join."""
        request = messages.JoinRequest(token=self._start[0], protocol=messages.OLDEST)
        if self.config.start == BEGINNING and not request.token:
            request.start = messages.START_BEGINNING
        return request

    def _join_here(self, before: messages.JoinReply, seconds: float) -> messages.JoinReply:
        """Joins again where the trainer is, which goes on while the planner is asked.

        What it has read ahead it takes and acknowledges. A planner that hears the request after
        that refuses it, as no rank stands there any more; then it is asked again.
        """
        while True:
            step = self.acked
            try:
                return self._join_at(before, step, seconds)
            except UserError:
                if self.acked == step:
                    raise

    def _join_at(self, before: messages.JoinReply, step: int, seconds: float) -> messages.JoinReply:
        """Joins again at a step.

        The rank says its position and, if it knows it, the token there; never an older one:
        joining with that would move the whole job back. A service that does not take positions
        is asked for the token; so is one without a log that does not know this one, as ranks
        that come with tokens may teach it.
        """
        token = self.tokens.get(step, b"")
        if before.protocol >= messages.BY_POSITION:
            at = self._position(before, step)
            # One before it would take a request without a token for that of a rank that begins.
            oldest = messages.OLDEST if token else messages.BY_POSITION
            request = messages.JoinAgainRequest(token=token, at=at, protocol=oldest)
            request.silent = self._silent
            try:
                return self._join(request, seconds)
            except UserError as error:
                if token or self._planners.epoch or isinstance(error, MovedError):
                    raise
        token = token or self._fetch_token(step, seconds)
        return self._join(messages.JoinRequest(token=token, protocol=messages.OLDEST), seconds)

    def _position(self, before: messages.JoinReply, step: int) -> messages.Position:
        """Returns a step, in the generation that the rank is of there."""
        with self._guard:
            generation, first = self._along
            if not generation or step < first:
                generation = before.generation
            return messages.Position(generation, step)

    def _went_along(self, before: messages.JoinReply, received: Step) -> None:
        """Notes the generation of a step that came.

        The job may have been moved since the rank joined, and have taken it along.
        """
        generation, first = self._along
        if received.generation != generation and received.generation <= before.generation:
            return  # as nearly always; what is looked at does not fall
        with self._guard:
            generation, first = self._along
            if self._reply is not before:
                return
            if received.generation > max(generation, before.generation):
                self._along = (received.generation, received.step)
            elif received.generation == generation:
                self._along = (generation, min(first, received.step))

    def _join(self, request: messages.JoinRequest, seconds: float) -> messages.JoinReply:
        request.job = self.config.job
        request.identity = self._reply.identity if self._reply else self.config.identity
        request.rank = self._coordinates()
        request.mesh = self._mesh_given()
        request.newest = messages.PROTOCOL
        what = f"{self._who} joining at {self.config.address}"
        reply = self._planners.ask("Join", request, messages.JoinReply, seconds, what)
        self._check(reply, what)
        if reply.token:
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

    # ---- state ----

    def state(self, step: int, until: float | None) -> bytes:
        """Returns the resume token of the position after ``step`` steps."""
        if step not in self.tokens:
            self.joined(until)

        def attempt(seconds: float) -> bytes:
            return self.tokens.get(step) or self._fetch_token(step, seconds)

        planner = f"the planner at {self.config.address}"
        with self.logged(f"the state at step {step}", until, planner):
            return rpc.retry(attempt, Backoff(self._who), self._closed, until, self._note)

    def _fetch_token(self, step: int, seconds: float) -> bytes:
        assert self._reply is not None
        what = f"{self._who} asking {self.config.address} for the state of step {step}"
        request = messages.StateRequest(identity=self._reply.identity, step=step)
        reply = self._planners.ask("State", request, messages.StateReply, seconds, what)
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
        who = self._who
        what = f"{who} reporting step {request.step} to {self.config.address}"

        def attempt(seconds: float) -> None:
            self._planners.ask("Report", request, messages.ReportReply, seconds, what)

        rpc.retry(attempt, Backoff(self._who), self._closed, until, lambda _: None)

    # ---- changes ----

    def change(self, change: bytes, token: bytes, until: float | None) -> None:
        """Changes the topology from the position of token on; again it does nothing."""
        request = messages.ChangeRequest(change, self.joined(until).identity, token)
        what = f"{self._who} changing the topology of the job at {self.config.address}"

        def attempt(seconds: float) -> None:
            self._planners.ask("Change", request, messages.ChangeReply, seconds, what)

        rpc.retry(attempt, Backoff(self._who), self._closed, until, self._note)

    # ---- batches ----

    def batch(self, step: int, until: float | None) -> Step:
        """Returns this rank's part of ``step``; waits until it is there."""
        failures, unreached, joining = 0, 0, False

        def on_lost(error: LostError) -> None:
            nonlocal failures, unreached
            if joining:  # it says nothing of the constructor; what it says of planners is noted
                self._note(error)
                return
            failures += 1
            unreached += error.code == "UNAVAILABLE"
            self._elsewhere = self._elsewhere or error.code == "ABORTED"
            constructor = self._reply.constructor if self._reply else ""
            # The planner may hear one that this rank does not reach, however often it joins.
            if error.code == SILENT or unreached > UNREACHED:
                self._silent = constructor
            if error.code == SILENT:
                # The connection may be dead where another one is not.
                self._connections.drop(constructor or self._planners.current)
            again = (
                self._elsewhere
                or error.code == SILENT
                or (bool(self._silent) and constructor == self._silent)
            )
            self._stale = self._stale or failures >= 2 or again
            late = error.code == "DEADLINE_EXCEEDED"
            (self.progress.late if late else self.progress.lost)(self.source(), error)
            self._note(error)

        def attempt(seconds: float) -> Step:
            nonlocal joining
            joining = True
            reply = self._joined(seconds)
            joining = False
            try:
                return self._batch(step, reply, seconds)
            except UserError as error:
                self._check_taken(error)
                if error.code != "ALREADY_EXISTS" or not self._doubt:
                    raise
                # The other client that joined since may be this one.
                raise with_code(LostError(str(error)), "ABORTED") from None

        received = rpc.retry(attempt, Backoff(self._who), self._closed, until, on_lost)
        self.lost = None
        self._silent = ""
        if self._doubt and time.monotonic() - self._doubt > DOUBT_TIME:
            self._doubt = 0.0  # it was never granted, or this step would not have come
        self.progress.move()
        return received

    def _batch(self, step: int, reply: messages.JoinReply, seconds: float) -> Step:
        if not reply.fetches:
            raise UserError(
                f"{self._who} fetches nothing: the job broadcasts from another rank "
                "(output.broadcast_at). Give this rank no iterator"
            )
        what = f"{self._who} waiting for step {step} from {self.source()}"
        if self.config.way != CALLS and reply.constructor not in self._callers:
            try:
                received = self._streamed(step, reply, what)
                self._went_along(reply, received)
                return received
            except UserError as error:
                if error.code not in UNKNOWN:
                    raise
                if self.config.way:  # not for a retry, as an answer of another service would be
                    old = f"gives no stream, which way={self.config.way!r} takes: it is older"
                    raise UserError(f"{what}: the constructor {old} ({error})") from None
                self._callers.add(reply.constructor)
        request = messages.BatchRequest(
            identity=reply.identity,
            generation=reply.generation,
            step=step,
            acked=min(self.acked, step),
            rank=self._coordinates(),
            join=reply.join,
            hears=True,
            epoch=self._planners.epoch,
            waited_us=self._waited_us(),
        )
        call = self._ask(reply.constructor, request, self._call_time(reply, seconds), what)
        self.carried = request.acked
        try:
            received = receive(
                self._frames(call, reply.constructor, what), step, self._choice(reply)
            )
        except BugError as error:
            raise with_code(BugError(f"{what}: {error}"), error.code) from error
        finally:
            call.cancel()  # a no-op once the stream is at its end
        self._tell(request.acked)
        self._went_along(reply, received)
        return received

    def _call_time(self, reply: messages.JoinReply, seconds: float) -> float:
        """Returns the seconds that a call for a step may take.

        One that is ended when nothing comes is bounded by the wait alone.
        """
        if not self._attention.watches(reply.constructor):
            return seconds
        wait: Wait | None = getattr(self._calls, "wait", None)
        left = wait.until - time.monotonic() if wait is not None else rpc.MAX_PATIENCE
        return max(min(left, rpc.MAX_PATIENCE), seconds)

    @property
    def streams(self) -> bool:
        """Whether steps come on a stream."""
        return self._stream is not None

    def tell(self, until: int) -> bool:
        """Has the steps before ``until`` come, and says how far the trainer is.

        Returns False if there is no stream to say it on: the next one begins with that.
        """
        with self._guard:
            self._until = max(self._until, until)
            stream, position = self._stream, Position(self.acked, self._until)
            if stream is None:
                return False
            self.carried = max(self.carried, position.acked)
        stream.tell(position, self._planners.epoch, self._waited_us())
        return True

    def _waited_us(self) -> int:
        """How long the trainer has stood still, in microseconds, plus 1: 0 would say nothing.

        It counts the wait under way, too.
        """
        return int(self.stood.seconds() * 1e6) + 1

    def _streamed(self, step: int, reply: messages.JoinReply, what: str) -> Step:
        """Returns the next step of the stream; opens one if there is none for it."""
        stream = self._stream
        if stream is None or stream.reply is not reply or stream.next != step:
            self._drop_stream()
            stream = self._open_stream(step, reply, what)
        try:
            return stream.receive(what, self._closed.is_set, self._heard)
        except Unshared as error:
            self._drop_stream()
            if isinstance(error, Untaken) and self.config.way == SHARED:
                # It joins again, and hears why there is no memory, if that is the constructor's.
                raise with_code(LostError(f"{what}: {SILENT_TEXT}"), SILENT) from None
            self._without(reply, error)
            raise with_code(LostError(f"{what}: {error}"), "UNAVAILABLE") from None
        except BaseException:
            self._drop_stream()
            raise

    def _choice(self, reply: messages.JoinReply) -> Choice:
        others = elsewhere(reply.format, reply.mesh, self.config.pp.rank or 0)
        return Choice(self.config.tensors, others)

    def _open_stream(self, step: int, reply: messages.JoinReply, what: str) -> Stream | Line:
        """Opens a line to the constructor: in shared memory, unless that is not possible."""
        given, choice = self._ticket(reply, what), self._choice(reply)
        with self._guard:
            hello = messages.DeliverHello(
                acked=min(self.acked, step),
                until=self._until,
                epoch=self._planners.epoch,
                waited_us=self._waited_us(),
                step=step,
                identity=reply.identity,
                generation=reply.generation,
                rank=self._coordinates(),
                join=reply.join,
                copies=True,
            )
            if given is not None and not self.closed:
                try:
                    self._stream = Line(given, hello, reply, self._attention, choice)
                except Unshared as error:
                    self._without(reply, error)
            if self._stream is None:
                hello.unshared = self._unshared[1] if self._unshared[0] is reply else ""
                channel = self._channel(reply.constructor)
                try:
                    method = channel.stream_stream(DELIVER)
                    self._stream = Stream(method, hello, reply, self._attention, choice)
                except ValueError as error:
                    raise rpc.closed_error(channel, what, error) from None
            self.carried = max(self.carried, hello.acked)
            return self._stream

    def _ticket(self, reply: messages.JoinReply, what: str) -> messages.ShareReply | None:
        """Returns what opens a line in shared memory; None if that is not wanted or possible."""
        if self.config.way not in ("", SHARED) or self._unshared[0] is reply:
            return None
        channel = self._channel(reply.constructor)

        def share(request: bytes) -> bytes:
            method = messages.CONSTRUCTOR + "Share"
            return rpc.call_unary(channel, method, request, SHARE_TIME, what)

        try:
            return ticket_of(share, self._coordinates(), reply.join, self.config.shared_dir)
        except Unshared as error:
            self._without(reply, error)
            return None
        except LostError as error:
            if error.code == "DEADLINE_EXCEEDED":  # its answer waits for nothing
                raise with_code(LostError(f"{what}: {SILENT_TEXT}"), SILENT) from None
            raise

    def _without(self, reply: messages.JoinReply, why: Unshared) -> None:
        """Has the batches of a join come on a stream. Raises UserError if that is not wanted."""
        if self.config.way == SHARED:
            raise UserError(
                f"way is {SHARED!r}, and {why}: leave it out to have the best that is possible"
            )
        self._unshared = (reply, str(why))
        rpc.log.info("%s gets its steps by a stream: %s", self._who, why)

    def _drop_stream(self) -> None:
        with self._guard:
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()

    def _ask(self, address: str, request: Message, seconds: float, what: str) -> Any:
        channel = self._channel(address)
        try:
            method = channel.unary_stream(messages.CONSTRUCTOR + "Batch")
            return method(request.encode(), timeout=seconds)
        except ValueError as error:
            raise rpc.closed_error(channel, what, error) from None

    def _frames(self, call: Any, address: str, what: str) -> Iterator[bytes]:
        """Yields the frames of an answer, but for those that only say that it is waited for."""
        import grpc  # late: millrace.rpc says why

        watched, whole = self._attention.begin(call, address), False
        try:
            for frame in call:
                self._attention.heard(watched)
                if frame[:1] == bytes([messages.WAITING]):
                    self._heard(messages.Frame.decode(frame).waiting)
                else:
                    self._heard(None)
                    yield frame
            whole = True
        except grpc.RpcError as error:
            if self.closed:
                raise rpc.Closed(f"{what}: the loader was closed") from None
            if watched.silent:
                raise with_code(LostError(f"{what}: {SILENT_TEXT}"), SILENT) from None
            raise rpc.classify(error, what) from None
        finally:
            self._attention.end(watched, whole)

    # ---- acknowledgements ----

    def advance(self, acked: int) -> None:
        """Notes that the trainer is done with all steps before ``acked``.

        Every request says so, and acknowledge().
        """
        with self._guard:
            self.acked = max(self.acked, acked)

    def acknowledge(self, acked: int, leaves: bool = False) -> None:
        """Tells the service how far the trainer is, and whether that is its last word.

        Raises LostError if it did not hear.
        """
        reply = self._reply
        if reply is None:
            raise LostError(f"{self._who} has not joined")
        request = messages.AckRequest(
            identity=reply.identity,
            generation=reply.generation,
            acked=acked,
            rank=self._coordinates(),
            join=reply.join,
            epoch=self._planners.epoch,
            waited_us=self._waited_us(),
            leaves=leaves,
        )
        what = f"{self._who} acknowledging step {acked} to {self.source()}"
        channel = self._channel(reply.constructor)
        method = messages.CONSTRUCTOR + "Ack"
        try:
            rpc.call_unary(channel, method, request.encode(), ACK_TIME, what)
        except rpc.OtherError as error:
            self._check_taken(error)
            raise
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

    def late(self, seconds: float, what: str, source: str = "") -> str:
        """Returns the message of a trainer that has waited; source: not for the constructor."""
        cause = f"; last error: {self.lost}" if self.lost else ""
        waited = f"{self._who} has waited {seconds:.0f} s for {what}"
        return f"{waited} from {source or self.source()}{cause}"

    def log_wait(self, seconds: float, what: str, source: str = "") -> None:
        """Logs that the trainer has waited, and what the service waits for, if that is known."""
        why = ""
        with contextlib.suppress(Error, ValueError, KeyError):
            asking = f"{self._who} asking {self.config.address} for its status"
            status = json.loads(self._planners.status(asking))
            why = f"; the service waits for {status['waiting_for']}"
        if not self.closed:
            rpc.log.warning("%s%s", self.late(seconds, what, source), why)

    @contextlib.contextmanager
    def logged(self, what: str, until: float | None, source: str = "") -> Iterator[None]:
        """Limits what is done inside, and logs what the service waits for if it takes long.

        What is done inside waits in this thread, and raises WaitError when that is too long.
        ``source`` names who is asked; empty: the constructor.
        """
        over = threading.Event()
        said = (over, what, source)
        threading.Thread(target=self._log_waits, args=said, daemon=True).start()
        before = getattr(self._calls, "wait", None)
        self._calls.wait = wait = before or self.wait(what, until, source)
        try:
            yield
        except WaitError:
            raise
        except LostError as error:
            raise with_code(self.progress.over(wait, error), error.code) from error
        finally:
            self._calls.wait = before
            over.set()

    def _log_waits(self, over: threading.Event, what: str, source: str) -> None:
        began, pause = time.monotonic(), WAIT_LOG_AFTER
        while not over.wait(pause):
            self.log_wait(time.monotonic() - began, what, source)
            pause = WAIT_LOG_EVERY

    def wait(self, what: str, until: float | None, source: str = "") -> Wait:
        """Returns a wait that begins now; source: not for the constructor."""
        now, config = time.monotonic(), self.config
        end = now + config.timeout if until is None else until
        what = f"{what} from {source or self.source()}"
        return Wait(self._who, what, now, end, config.stall_timeout)

    def _heard(self, waits: messages.Waiting | None) -> None:
        """Takes what the constructor says that it waits for; None: a part of a step came."""
        if waits is None:
            self.progress.part(self.source())
        else:
            self.progress.hear(self.source(), waits.reason, waits.idle_ms / 1000, waits.ranks)
        stream = self._stream
        if stream is not None and self.stood.waits():
            stream.stands(self._planners.epoch, self._waited_us())
        self._check_wait()

    def _check_wait(self) -> None:
        """Raises WaitError if the trainer's call in this thread has waited for too long."""
        wait = getattr(self._calls, "wait", None)
        if wait is not None:
            self.progress.check(wait, time.monotonic())

    # ---- plumbing ----

    def _note(self, error: LostError) -> None:
        self.lost = error
        self.retries += 1
        if error.code == "UNAVAILABLE":
            self._connections.drop_outdated()
        self._check_wait()

    def _check_taken(self, error: UserError) -> None:
        """Raises LostError if a rank that has joined needs another access key, or another call.

        The service is gone from that address, which another one has now, and may be back.
        """
        if self._reply is not None and error.code in OTHER_SERVICE:
            self._callers.discard(self._reply.constructor)  # that one may know streams
            text = f"another service listens there by now: {error}"
            raise with_code(LostError(text), "UNAVAILABLE") from None

    def _channel(self, address: str) -> Channel:
        """Returns the channel to a constructor; empty: where the planner is.

        The access key of the planner that answered last counts there, too.
        """
        planner = self._planners.current
        return self._connections.to(address or planner, planner)

    def _coordinates(self) -> messages.Coordinates:
        ranks = [self.config.axis(axis).rank or 0 for axis in AXES]
        return messages.Coordinates(*ranks)

    def _mesh_given(self) -> messages.Mesh:
        dp, cp, pp, tp = (self.config.axis(axis).size or 0 for axis in AXES)
        return messages.Mesh(dp, cp, pp, tp, self.config.vpp_size or 0)
