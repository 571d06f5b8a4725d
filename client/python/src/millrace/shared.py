"""A rank's line with a constructor of its machine: bodies in memory that both map.

A call gives a ticket and the path of a socket. On the socket come short messages, described
in docs/bytes.md, and descriptors of memory, which is mapped read-only. The arrays of a step
that are not widened or small are views of that memory: a step's slot in it is given back when
the last of them is gone. As Stream, a Line keeps no batch and tries nothing again.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import mmap
import os
import socket
import struct
import sys
import threading
import time
from typing import Callable, NamedTuple

from millrace import messages, rpc
from millrace.attention import Attention
from millrace.errors import BugError, LostError, UserError, with_code
from millrace.memory import lend
from millrace.receive import Step
from millrace.stream import SILENT, SILENT_TEXT, STANDS_EVERY, Hear, Position, step_of
from millrace.table import ALL, Array, Choice, Tables
from millrace.wire import WireError

# The folder of sockets, for constructors too (internal/hostmem); NONE: no memory is shared.
DIR, NONE = "MILLRACE_SHARED_DIR", "none"

HELLO, WHERE, NEW_RING, IN_RING, IN_LINE, WAITING, REFUSAL = range(1, 8)

HEAD = struct.Struct("<IIQ")  # kind, number, bytes that follow
PLACE = struct.Struct("<QQQ")  # ring, offset, size
POSITION = struct.Struct("<QQQQ")  # acked, until, epoch, waited

# Limits: of a message but for bodies, and of what is read at once.
MOST, BUFFER = 64 << 20, 64 << 10

# Memory that could change its size under its reader is not mapped: these seals keep it.
GET_SEALS, SHRINK_AND_GROW = 1034, 0x2 | 0x4

# Looks without a word on a line that has brought none yet, after which it is given up: the
# constructor may not have taken it. One that is busy gets more time for that than for later words.
FIRST_LOOKS = 10

# Seconds that the question for a socket may take, whose answer waits for nothing.
SHARE_TIME = 3.0


class Unshared(Exception):
    """Why no memory of the constructor's can be mapped. There are other ways."""


class Untaken(Unshared):
    """The line was never answered: it, or the constructor, is not served."""


class _Ring(NamedTuple):
    number: int
    memory: mmap.mmap

    def slot(self, offset: int, size: int, step: int, freed: list[int]) -> Array:
        """Returns a step's bytes; its number is added to freed when nothing views them."""
        return lend(self.memory, offset, size, freed, step)


def machine() -> str:
    """Returns what names this machine since it was started; empty if that is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def ticket_of(
    call: Callable[[bytes], bytes], rank: messages.Coordinates, join: int, folder: str
) -> messages.ShareReply:
    """Asks the constructor for a line, with ``call``. Raises Unshared, or what that raises."""
    here = machine() if sys.platform == "linux" else ""
    if folder == NONE:
        raise Unshared("sharing memory is switched off for the rank")
    if not here or not hasattr(socket, "SO_PEERCRED"):
        raise Unshared("this system has no memory that can be shared: it takes Linux")
    try:
        raw = call(messages.ShareRequest(rank, join, here).encode())
    except UserError as error:
        if error.code in ("UNIMPLEMENTED", "PERMISSION_DENIED"):
            raise Unshared("the constructor is of a version that shares none") from None
        raise
    reply = messages.ShareReply.decode(raw)
    if not reply.socket:
        raise Unshared(reply.reason)
    if folder:
        reply.socket = os.path.join(folder, os.path.basename(reply.socket))
    return reply


def _dial(path: str) -> socket.socket:
    """Connects to a process of the same user."""
    made = socket.socket(socket.AF_UNIX)
    try:
        made.setblocking(False)  # where too many lines wait to be taken, it would wait for ever
        made.connect(path)
        made.setblocking(True)
        peer = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        user = struct.unpack("iII", peer)[1]
        if user != os.geteuid():
            raise OSError(f"the other side is user {user}, and this one {os.geteuid()}")
    except OSError as error:
        made.close()
        raise Unshared(
            f"the socket of the constructor cannot be reached from here: {path}: {error}"
        ) from None
    return made


class _Cut(NamedTuple):
    """How the attention ends a line, as it cancels calls."""

    cancel: Callable[[], None]


class Line:
    """See the module, and Stream, whose methods these are."""

    def __init__(
        self,
        given: messages.ShareReply,
        hello: messages.DeliverHello,
        reply: messages.JoinReply,
        attention: Attention,
        choice: Choice = ALL,
    ) -> None:
        self.reply, self.next = reply, hello.step
        self.told = Position(hello.acked, hello.until)
        self._said = time.monotonic()  # that the trainer stands still
        self._tables = Tables(choice)
        self._freed: list[int] = []  # steps whose slots the constructor does not know to be free
        self._ring: _Ring | None = None
        self._came: list[int] = []  # descriptors
        self._in, self._from, self._to = bytearray(BUFFER), 0, 0
        self._socket = _dial(given.socket)
        self._turn = threading.Lock()  # to send
        self._reading = threading.RLock()
        hello.listens = given.listens
        with self._turn:
            self._send(HELLO, given.ticket + hello.encode())
        self._attention = attention
        self._watched = attention.begin(
            _Cut(self._cut), reply.constructor, self._owed, given.listens
        )
        self._watched.allowed = max(self._watched.allowed, FIRST_LOOKS)  # until something comes
        self._taken = False  # something came

    def _owed(self) -> bool:
        return self.next < self.told.until

    def _cut(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, kind: int, payload: bytes) -> None:
        """Sends a message; _turn is held."""
        with contextlib.suppress(OSError):  # whoever receives meets it
            self._socket.sendall(HEAD.pack(kind, 0, len(payload)) + payload)

    def tell(self, position: Position, epoch: int, waited_us: int) -> None:
        """Says how far the rank is, unless it has said so, and which slots are free."""
        with self._turn:
            if position <= self.told:  # neither number falls
                return
            self.told = position
            self._where(epoch, waited_us)

    def _where(self, epoch: int, waited_us: int) -> None:
        """Says how far the rank is; _turn is held."""
        said = (*self.told, epoch, waited_us, *(self._freed.pop() for _ in self._freed[:]))
        self._send(WHERE, struct.pack(f"<{len(said)}Q", *said))

    def stands(self, epoch: int, waited_us: int) -> None:
        """Says that the trainer stands still, once in a while, as Stream does."""
        now = time.monotonic()
        if now - self._said >= STANDS_EVERY:
            self._said = now
            with self._turn:
                self._where(epoch, waited_us)

    def end(self) -> None:
        """Ends the line. Idempotent, and safe while another thread receives.

        Of its memory only what arrays lie in is left.
        """
        self._cut()
        self._attention.end(self._watched, False)
        with self._reading, self._turn:  # a descriptor that is in use must not become another one
            self._socket.close()
            while self._came:
                os.close(self._came.pop())
            # Not when the collector of cycles comes by, which trainers switch off. What was read
            # already is of that memory.
            self._ring, self._from, self._to = None, 0, 0
            self._tables.end()

    def receive(self, what: str, closed: Callable[[], bool], hear: Hear) -> Step:
        """Returns the next step, as Stream.receive() does. Raises Unshared, too.

        If nothing ever came, it may be the line alone that is not taken, as by a constructor
        without descriptors: then a stream shows whether that says nothing at all.
        """
        try:
            with self._reading:
                received = self._step(what, hear)
        except (OSError, EOFError) as error:
            if closed():
                raise rpc.Closed(f"{what}: the loader was closed") from None
            if self._watched.silent and not self._taken:
                raise Untaken("the constructor has not taken the line to its socket") from None
            if self._watched.silent:
                raise with_code(LostError(f"{what}: {SILENT_TEXT}"), SILENT) from None
            text = f"{what}: the line to the constructor broke: {error}"
            raise with_code(LostError(text), "UNAVAILABLE") from None
        except (BugError, WireError) as error:
            raise BugError(f"{what}: {error}") from error
        self._attention.whole(self._watched)
        self.next = self.told.until if received.end else received.step + 1
        return received

    def _step(self, what: str, hear: Hear) -> Step:
        waited = False
        while True:
            self._fill(HEAD.size)
            self._taken = True
            if not waited:  # the wait for this step may not have begun with the line
                self._watched.since, waited = time.monotonic(), True
            self._attention.heard(self._watched)
            kind, number, size = HEAD.unpack(self._take(HEAD.size))
            if kind == IN_LINE:
                return self._in_line(number, size, hear)
            if size > MOST:
                raise BugError(f"a message has {size} bytes; the most is {MOST}")
            self._fill(size)
            payload = self._take(size)
            if kind == IN_RING:
                return self._in_ring(payload)
            if kind == NEW_RING:
                self._enter(payload)
            elif kind == WAITING:
                hear(messages.Waiting.decode(payload))
            elif kind == REFUSAL:
                raise rpc.refused(number, str(payload, "utf-8", "replace"), what)
            else:
                raise BugError(f"a message of kind {kind} came on the line")

    def _in_ring(self, payload: memoryview) -> Step:
        ring, offset, size = PLACE.unpack_from(payload)
        table = self._tables.read(payload[PLACE.size :])
        if self._ring is None or ring != self._ring.number or size != table.size:
            raise BugError(f"step {table.step} lies in {size} bytes of ring {ring}, which is none")
        if offset + size > len(self._ring.memory):
            raise BugError(f"step {table.step} lies outside its ring")
        if table.step != self.next:
            raise BugError(f"step {table.step} came when step {self.next} was due")
        slot = self._ring.slot(offset, size, table.step, self._freed)
        return step_of(table, slot, self._tables.spares)

    def _in_line(self, number: int, size: int, hear: Hear) -> Step:
        if number > min(size, MOST):
            raise BugError(f"a message of {size} bytes begins with a table of {number}")
        self._fill(number)
        table = self._tables.read(self._take(number))
        if table.size != size - number:
            raise BugError(f"step {table.step} comes with {size - number} bytes, not {table.size}")
        if table.step != self.next:
            raise BugError(f"step {table.step} came when step {self.next} was due")
        body = self._tables.spares.take(table.size)
        room, filled = body.data, min(self._to - self._from, table.size)
        room[:filled] = self._take(filled)
        while filled < table.size:
            got = self._socket.recv_into(room[filled:])
            if not got:
                raise EOFError("it ended in a body")
            filled += got
            self._attention.heard(self._watched)
            if filled < table.size:
                hear(None)
        return step_of(table, body, self._tables.spares)

    def _enter(self, payload: memoryview) -> None:
        """Maps a ring. The one before stays as long as something lies in it."""
        number, _, size = PLACE.unpack(payload)
        if not self._came:
            raise BugError("memory was announced, and no descriptor came with it")
        descriptor = self._came.pop(0)
        try:
            if fcntl.fcntl(descriptor, GET_SEALS) & SHRINK_AND_GROW != SHRINK_AND_GROW:
                raise BugError("memory came that is not sealed")
            if os.fstat(descriptor).st_size != size:
                raise BugError(f"memory came that has not the {size} bytes announced")
            memory = mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ)
        except OSError as error:
            raise Unshared(f"memory of the constructor cannot be mapped: {error}") from None
        finally:
            os.close(descriptor)
        self._ring = _Ring(number, memory)

    def _take(self, size: int) -> memoryview:
        self._from += size
        return memoryview(self._in)[self._from - size : self._from]

    def _fill(self, size: int) -> None:
        """Reads until ``size`` bytes are there. What was taken before is overwritten."""
        have = self._to - self._from
        if have >= size:
            return
        rest = self._in[self._from : self._to]
        if size > len(self._in):
            self._in = bytearray(size + size // 2)
        self._in[:have] = rest
        self._from, self._to = 0, have
        descriptors = array.array("i")
        room = socket.CMSG_SPACE(4 * descriptors.itemsize)
        while self._to < size:
            got, control, _, _ = self._socket.recvmsg_into([memoryview(self._in)[self._to :]], room)
            for level, kind, data in control:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    whole = len(data) - len(data) % descriptors.itemsize
                    self._came.extend(array.array("i", data[:whole]))
            if not got:
                raise EOFError("it ended" if not self._to else "it ended in a message")
            self._to += got
