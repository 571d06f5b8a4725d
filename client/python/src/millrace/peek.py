"""A look at the batches of a running job, from outside.

It joins nothing, acknowledges nothing and keeps no connection, so the job goes on
unchanged.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from millrace import lineage, messages, rpc
from millrace.access import Access
from millrace.config import (
    AXES,
    TLS,
    Rank,
    check_path,
    parse_identity,
    pick_address,
    seconds,
    step_number,
    text,
    whole,
)
from millrace.errors import BugError, LostError, UserError, WaitError
from millrace.planners import serving
from millrace.receive import Microbatch, receive
from millrace.waiting import Progress, Wait
from millrace.wire import Message, WireError


@dataclass(frozen=True)
class Peek:
    """What one rank gets of one step."""

    step: int
    rows: int  # of the global batch, over all ranks
    sequence_length: int  # tokens of a row
    sources: list[str]
    batches: list[dict[str, Any]]  # by microbatch, each what next() of the rank's loader returns
    lineage: list[list[lineage.Row]]  # by microbatch, as Loader.lineage
    microbatches: list[Microbatch]  # the same with kept columns and places of images


def peek(
    address: str | None = None,
    step: int | None = None,
    *,
    job: str | None = None,
    identity: str | bytes | None = None,
    dp_rank: int = 0,
    cp_rank: int = 0,
    pp_rank: int = 0,
    tp_rank: int = 0,
    timeout: float = 60.0,
    stall_timeout: float = 40.0,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    access_key_file: str | None = None,
) -> Peek:
    """Returns what a rank of the job served at ``address`` gets of a step, and changes nothing.

    address: host:port of the planner, or several as for connect(); default $MILLRACE_ADDR.
    step: default the newest that is assembled. Steps are there from the one that the
        slowest rank is at to the last that is planned.
    job, identity: refuse a service that serves another job, or another spec.
    *_rank: the rank to look at, which need not run.
    timeout: seconds that it may take. A step that is planned is waited for.
    stall_timeout: seconds that it may take while nothing moves anywhere in the service.
    tls_*, access_key_file: as for connect().

    UserError for a step or a rank that is not there; the message names the steps that are.
    LostError if the service does not answer; WaitError, one of those, if nothing has moved for
    stall_timeout, which says who waits for whom.
    """
    given = zip(AXES, (dp_rank, cp_rank, pp_rank, tp_rank))
    ranks = {axis: whole(f"{axis}_rank", rank) for axis, rank in given}
    for axis, rank in ranks.items():
        Rank(rank, None).check(axis)
    if step is not None:
        step = step_number("step", step)
    times = seconds("timeout", timeout), seconds("stall_timeout", stall_timeout)
    address, tls = pick_address(address), TLS(tls_ca, tls_cert, tls_key)
    tls.check()
    check_path("access_key_file", access_key_file)
    address = serving(address, tls, access_key_file, times[0])
    access = Access(address, access_key_file, tls.used())
    look = _Look(address, messages.Coordinates(**ranks), tls, access, times)
    located = look.locate(text("job", job), parse_identity(identity))
    return look.step(located, step)


class _Look:
    def __init__(
        self,
        address: str,
        rank: messages.Coordinates,
        tls: TLS,
        access: Access,
        times: tuple[float, float],
    ) -> None:
        self.address, self.rank, self.tls, self.access = address, rank, tls, access
        began, (timeout, stall) = time.monotonic(), times
        self.until = began + timeout
        places = " ".join(f"{axis}={getattr(rank, axis)}" for axis in AXES)
        self.what = f"looking at the batch of rank {places} at {address}"
        self.progress = Progress()
        self.wait = Wait(f"rank {places}", "a look at a step", began, self.until, stall)

    def locate(self, job: str, identity: bytes) -> messages.JoinReply:
        """Asks the planner which constructor serves the rank."""
        request = messages.LocateRequest(job=job, identity=identity, rank=self.rank)
        with self._channel(self.address) as channel:
            raw = rpc.call_unary(
                channel, messages.PLANNER + "Locate", request.encode(), self._some(), self.what
            )
        try:
            reply = messages.JoinReply.decode(raw)
        except WireError as error:
            raise BugError(f"{self.what}: reading the answer: {error}") from error
        if not reply.fetches:
            raise UserError(f"{self.what}: tp_rank=0 of the same place broadcasts to it: give that")
        return reply

    def step(self, located: messages.JoinReply, step: int | None) -> Peek:
        """Asks the constructor for a step."""
        request = messages.PeekRequest(
            identity=located.identity,
            rank=self.rank,
            step=step or 0,
            newest=step is None,
            hears=True,
        )
        address = located.constructor or self.address
        with self._channel(address) as channel:
            received = receive(self._frames(channel, address, request), step)
        sources = [*located.sources, *received.joined]
        return Peek(
            step=received.step,
            rows=received.rows,
            sequence_length=received.sequence_length,
            sources=sources,
            batches=[part.arrays for part in received.microbatches],
            lineage=[lineage.read(part.rows, sources) for part in received.microbatches],
            microbatches=received.microbatches,
        )

    def _frames(self, channel: Any, address: str, request: Message) -> Iterator[bytes]:
        """Yields the frames of the answer, but for those that only say that it is waited for."""
        import grpc  # late: millrace.rpc says why

        call = channel.unary_stream(messages.CONSTRUCTOR + "Peek")(
            request.encode(), timeout=self._left()
        )
        watch = _Watch(self.progress, self.wait, call)
        try:
            for frame in call:
                if frame[:1] != bytes([messages.WAITING]):
                    yield frame
                    continue
                waits = messages.Frame.decode(frame).waiting
                who = f"the constructor at {address}"
                self.progress.hear(who, waits.reason, waits.idle_ms / 1000, waits.ranks)
        except grpc.RpcError as error:
            if watch.late is not None:
                raise watch.late from None
            raise rpc.classify(error, self.what) from None
        finally:
            watch.end()

    def _some(self) -> float:
        """Returns the seconds for a call that says nothing of what it waits for."""
        return min(self._left(), self.wait.stall)

    def _left(self) -> float:
        left = self.until - time.monotonic()
        if left <= 0:
            raise LostError(f"{self.what}: no answer in time")
        return left

    @contextlib.contextmanager
    def _channel(self, address: str) -> Iterator[Any]:
        channel = rpc.open_channel(address, self.tls, self.access)
        try:
            yield channel
        finally:
            channel.close()


class _Watch:
    """Cancels a call when nothing has moved for too long, and has the error that says so."""

    EVERY = 0.25  # seconds between two looks

    def __init__(self, progress: Progress, wait: Wait, call: Any) -> None:
        self.late: WaitError | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._look, args=(progress, wait, call), name="millrace-peek", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Ends the looks."""
        self._over.set()
        self._thread.join()

    def _look(self, progress: Progress, wait: Wait, call: Any) -> None:
        while not self._over.wait(self.EVERY):
            try:
                progress.check(wait, time.monotonic())
            except WaitError as error:
                self.late = error
                call.cancel()
                return
