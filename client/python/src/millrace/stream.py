"""A rank's stream with its constructor: steps come in order, without being asked for one by one.

Down come the frames of one step after the other; up goes how far the trainer is, and before
which step it has room. One thread receives; any may tell. A stream keeps no batch and tries
nothing again: after its first error the session opens another one.
"""

from __future__ import annotations

import queue
import time
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from millrace import messages, rpc
from millrace.attention import Attention
from millrace.errors import BugError, LostError, with_code
from millrace.lineage import Lines
from millrace.memory import Spares
from millrace.receive import Microbatch, Step
from millrace.table import ALL, Array, Choice, Table, Tables
from millrace.wire import WireError

NOTHING: Array = np.empty(0, np.uint8)

DELIVER = messages.CONSTRUCTOR + "Deliver"

# Seconds between two words that a trainer stands still: whoever looks at who waits for whom looks
# no more often.
STANDS_EVERY = 1.0

# The code of a call that was given up since the service said nothing at all on it.
SILENT = "SILENT"
SILENT_TEXT = (
    "it says nothing any more: it is stopped, or the network between does not carry what it says"
)


# What takes what the constructor waits for while a step is due; None: a part of the step came.
Hear = Callable[[Optional[messages.Waiting]], None]


class Position(NamedTuple):
    """How far a rank is: the steps that its trainer is done with, and those it has room for."""

    acked: int
    until: int


class Stream:
    """See the module. ``next`` is the step that comes next, ``reply`` the join that it is of."""

    def __init__(
        self,
        method: Callable[..., Any],
        hello: messages.DeliverHello,
        reply: messages.JoinReply,
        attention: Attention,
        choice: Choice = ALL,
    ) -> None:
        self.reply, self.next = reply, hello.step
        self.told = Position(hello.acked, hello.until)
        self._said = time.monotonic()  # that the trainer stands still
        self._tables = Tables(choice)
        self._out: queue.SimpleQueue[messages.DeliverRequest | None] = queue.SimpleQueue()
        self._out.put(hello)
        self._call = method(one.encode() for one in iter(self._out.get, None))
        self._attention = attention
        self._watched = attention.begin(self._call, reply.constructor, self._owed)

    def _owed(self) -> bool:
        return self.next < self.told.until

    def tell(self, position: Position, epoch: int, waited_us: int) -> None:
        """Says how far the rank is, unless it has said so. Does not wait."""
        if position > self.told:  # neither number falls
            self.told = position
            self._out.put(messages.DeliverRequest(*position, epoch, waited_us))

    def stands(self, epoch: int, waited_us: int) -> None:
        """Says that the trainer stands still, once in a while. Does not wait."""
        now = time.monotonic()
        if now - self._said >= STANDS_EVERY:
            self._said = now
            self._out.put(messages.DeliverRequest(*self.told, epoch, waited_us))

    def end(self) -> None:
        """Ends the stream. Idempotent, and safe while another thread receives."""
        self._out.put(None)
        self._call.cancel()
        self._attention.end(self._watched, False)
        self._tables.end()

    def receive(self, what: str, closed: Callable[[], bool], hear: Hear) -> Step:
        """Returns the next step; ``hear`` takes what the constructor waits for meanwhile.

        Raises a typed error, or what ``hear`` raises. Then the stream is of no use.
        """
        import grpc  # late: millrace.rpc says why

        try:
            received = self._step(what, hear)
        except grpc.RpcError as error:
            error.__traceback__ = None  # the call is the error, and would hold its frames' memory
            if closed():
                raise rpc.Closed(f"{what}: the loader was closed") from None
            if self._watched.silent:
                raise with_code(LostError(f"{what}: {SILENT_TEXT}"), SILENT) from None
            raise rpc.classify(error, what) from None
        except (BugError, WireError) as error:
            raise BugError(f"{what}: {error}") from error
        self._attention.whole(self._watched)
        self.next = self.told.until if received.end else received.step + 1
        return received

    def _step(self, what: str, hear: Hear) -> Step:
        table: Table | None = None
        body, room, filled = NOTHING, NOTHING.data, 0
        waited = False
        while table is None or filled < table.size:
            frame = next(self._call, None)
            if frame is None:
                raise with_code(
                    LostError(f"{what}: the constructor ended the stream"), "UNAVAILABLE"
                )
            if not waited:  # the wait for this step may not have begun with the stream
                self._watched.since, waited = time.monotonic(), True
            self._attention.heard(self._watched)
            if frame[:1] == bytes([messages.WAITING]):
                hear(messages.Frame.decode(frame).waiting)
                continue
            head, part = messages.split_frame(frame)
            if table is None:
                table = self._tables.read(head)
                if table.step != self.next:
                    raise BugError(f"step {table.step} came when step {self.next} was due")
                body = self._tables.spares.take(table.size)
                room = body.data
            if filled + len(part) > table.size:
                raise BugError(f"step {table.step} has more than the {table.size} bytes announced")
            room[filled : filled + len(part)] = part
            filled += len(part)
            if filled < table.size:
                hear(None)
        return step_of(table, body, self._tables.spares)


def step_of(table: Table, body: Array, spares: Spares) -> Step:
    """Returns the step that a table and its body are; what is widened lies in spares."""
    if table.end:
        return Step(table.step, True, [], 0, topology=table.topology)
    if not table.layout.sections:
        raise BugError(f"step {table.step} has no microbatch")
    parts = [
        Microbatch(made.model, Lines(table.lines, table.origins, number), made.kept, made.images)
        for number, made in enumerate(table.layout.arrays(body, table.places, spares))
    ]
    return Step(
        table.step,
        False,
        parts,
        table.size,
        table.sequence_length,
        table.rows,
        table.joined,
        generation=table.generation,
    )
