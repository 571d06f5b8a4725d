"""A look at the batches of a running job, from outside.

It joins nothing, acknowledges nothing and keeps no connection, so the job goes on
unchanged.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from millrace import lineage, messages, rpc
from millrace.access import Access
from millrace.config import AXES, TLS, parse_identity, pick_address, whole
from millrace.errors import BugError, LostError, UserError
from millrace.receive import Microbatch, receive
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
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    access_key_file: str | None = None,
) -> Peek:
    """Returns what a rank of the job served at ``address`` gets of a step, and changes nothing.

    address: host:port of the planner; default $MILLRACE_ADDR.
    step: default the newest that is assembled. Steps are there from the one that the
        slowest rank is at to the last that is planned.
    job, identity: refuse a service that serves another job, or another spec.
    *_rank: the rank to look at, which need not run.
    timeout: seconds that it may take. A step that is planned is waited for.
    tls_*, access_key_file: as for connect().

    UserError for a step or a rank that is not there; the message names the steps that are.
    LostError if the service does not answer.
    """
    ranks = dict(zip(AXES, (dp_rank, cp_rank, pp_rank, tp_rank)))
    for axis, rank in ranks.items():
        if whole(f"{axis}_rank", rank) < 0:
            raise UserError(f"{axis}_rank is {rank}: ranks count up from 0")
    if step is not None and whole("step", step) < 0:
        raise UserError(f"step is {step}: steps count up from 0")
    address, tls = pick_address(address), TLS(tls_ca, tls_cert, tls_key)
    access = Access(address, access_key_file, tls.used())
    look = _Look(address, messages.Coordinates(**ranks), tls, access, timeout)
    located = look.locate(job or "", parse_identity(identity))
    return look.step(located, step)


class _Look:
    def __init__(
        self, address: str, rank: messages.Coordinates, tls: TLS, access: Access, timeout: float
    ) -> None:
        self.address, self.rank, self.tls, self.access = address, rank, tls, access
        self.until = time.monotonic() + timeout
        places = " ".join(f"{axis}={getattr(rank, axis)}" for axis in AXES)
        self.what = f"looking at the batch of rank {places} at {address}"

    def locate(self, job: str, identity: bytes) -> messages.JoinReply:
        """Asks the planner which constructor serves the rank."""
        request = messages.LocateRequest(job=job, identity=identity, rank=self.rank)
        with self._channel(self.address) as channel:
            raw = rpc.call_unary(
                channel, messages.PLANNER + "Locate", request.encode(), self._left(), self.what
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
            identity=located.identity, rank=self.rank, step=step or 0, newest=step is None
        )
        with self._channel(located.constructor or self.address) as channel:
            received = receive(self._frames(channel, request), step)
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

    def _frames(self, channel: Any, request: Message) -> Iterator[bytes]:
        import grpc  # late: millrace.rpc says why

        method = channel.unary_stream(messages.CONSTRUCTOR + "Peek")
        try:
            yield from method(request.encode(), timeout=self._left())
        except grpc.RpcError as error:
            raise rpc.classify(error, self.what) from None

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
