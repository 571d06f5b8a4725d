"""The fork server that runs Python functions for a loader, and its workers.

A loader starts ``python -c "from millrace._worker import main; main()"`` with a socket as
descriptor 3. The server imports the modules of the functions, and then forks a worker for
each time it is asked to, which costs milliseconds instead of the seconds of an import. It
runs one thread only and nothing of the user's but the imports: a fork copies the thread
that forks, and a lock that another one holds stays locked in the child for ever.

Messages are frames on a socket: "MRW1", the length as uint32, and JSON. Batches lie in
memory that both sides map (_columns). docs/bytes.md, "Worker processes", has all of it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import inspect
import json
import mmap
import os
import platform
import select
import signal
import socket
import struct
import sys
from typing import Any, Callable

import numpy as np

from millrace._columns import Reader
from millrace._function import Function, bound, said
from millrace._missing import explained, no_attribute

PROTOCOL = 1
MAGIC = b"MRW1"
HEADER = struct.Struct("<4sI")
MAX_FRAME = 16 << 20
MAX_ERRORS = 4 << 20  # bytes of row errors in one answer
READ = 1 << 12  # bytes at a time: of nearly all frames more than there are
FILES = 6  # of a new worker: its socket, its output, and input and output memory twice
CONTROL = 3  # the descriptor of the loader's socket
PR_SET_PDEATHSIG = 1

Frame = dict[str, Any]


class Wire:
    """Frames on a stream socket, with file descriptors, at most a few, beside each."""

    def __init__(self, sock: socket.socket, files: int = 0) -> None:
        self.sock = sock
        self._most = files
        self._buffer = b""
        self.files: list[int] = []

    def send(self, frame: Frame) -> None:
        body = json.dumps(frame).encode()
        self.sock.sendall(HEADER.pack(MAGIC, len(body)) + body)

    def receive(self) -> Frame | None:
        """The next frame; None at the end."""
        if not self._fill(HEADER.size):
            return None
        magic, size = HEADER.unpack(self._buffer[: HEADER.size])
        if magic != MAGIC or size > MAX_FRAME:
            raise ValueError(f"a frame begins with {magic!r} and has {size} bytes")
        if not self._fill(HEADER.size + size):
            return None
        body = self._buffer[HEADER.size : HEADER.size + size]
        self._buffer = self._buffer[HEADER.size + size :]
        return json.loads(body.decode())  # type: ignore[no-any-return]

    def _fill(self, size: int) -> bool:
        while len(self._buffer) < size:
            if self._most:
                data, files, _, _ = socket.recv_fds(self.sock, READ, self._most)
                self.files += files
            else:
                data = self.sock.recv(READ)
            if not data:
                return False
            self._buffer += data
        return True

    def waiting(self) -> bool:
        """Whether a frame was read already, so that the socket says nothing of it."""
        if len(self._buffer) < HEADER.size:
            return False
        size: int = HEADER.unpack(self._buffer[: HEADER.size])[1]
        return len(self._buffer) >= HEADER.size + size


class Shared:
    """Memory that the loader maps too. It only grows."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._map = mmap.mmap(file, os.fstat(file).st_size)

    def sized(self, size: int, grow: bool) -> mmap.mmap:
        if size > len(self._map):
            if grow:
                os.ftruncate(self._file, size)
            self._map = mmap.mmap(self._file, size)
        return self._map


class Functions:
    """The functions of this process: loaded by name, set up once."""

    def __init__(self) -> None:
        self._loaded: dict[str, Function] = {}
        self._started: dict[str, Callable[..., Any]] = {}

    def load(self, name: str) -> Function:
        """The function "module:name"; raises what the import raises."""
        if name not in self._loaded:
            module, _, path = name.partition(":")
            found: Any = importlib.import_module(module)
            for part in path.split("."):
                if not hasattr(found, part):
                    raise no_attribute(module, found, part)
                found = getattr(found, part)
            self._loaded[name] = bound(found)
        return self._loaded[name]

    def start(self, name: str) -> Callable[..., Any]:
        if name not in self._started:
            self._started[name] = self.load(name).start()
        return self._started[name]

    def describe(self, name: str) -> Frame:
        try:
            f = self.load(name)
            digest = f.digest()
        except BaseException as error:
            return {"name": name, "error": explained(name, error)}
        return {
            "name": name,
            "kind": f.kind,
            "in": [{"name": c.path, "type": str(c.type)} for c in f.inputs],
            "out": [{"name": c.path, "type": str(c.type)} for c in f.outputs],
            "digest": digest,
            "version": f.version,
            "needs": f.needs,
            "rng": f.rng >= 0,
            "setup": inspect.isclass(f.target),
        }


class Server:
    """The fork server: one thread, one socket, and the children that it waits for."""

    def __init__(self, control: socket.socket) -> None:
        self.wire = Wire(control, FILES)
        self.functions = Functions()
        self.children: set[int] = set()
        self.woken, waker = socket.socketpair()
        for sock in (self.woken, waker):
            sock.setblocking(False)
        self._waker = waker
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        """Serves until the loader is gone, and leaves no child."""
        try:
            while True:
                ready = [self.wire.sock]
                if not self.wire.waiting():
                    ready, _, _ = select.select([self.wire.sock, self.woken], [], [])
                if self.woken in ready:
                    self.woken.recv(4096)
                    self.reap()
                if self.wire.sock in ready:
                    frame = self.wire.receive()
                    if frame is None:
                        return
                    self.serve(frame)
        finally:
            for pid in self.children:
                kill(pid)

    def serve(self, frame: Frame) -> None:
        if frame["op"] == "open":
            self.wire.send(self.open(frame["functions"]))
        elif frame["op"] == "fork":
            self.fork(frame.get("environ", {}))
        elif frame["op"] == "kill" and frame["pid"] in self.children:
            kill(frame["pid"])

    def open(self, names: list[str]) -> Frame:
        described = [self.functions.describe(name) for name in names]
        gc.collect()
        gc.freeze()  # what is shared with workers stays shared
        return {
            "op": "opened",
            "protocol": PROTOCOL,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "functions": described,
            "threads": threads(),
        }

    def fork(self, environ: dict[str, str]) -> None:
        files, self.wire.files = self.wire.files[:FILES], self.wire.files[FILES:]
        server = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.setpgid(0, 0)
                die_with(server)
                os.environ.update(environ)  # before anything in this process looks for a GPU
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for sock in (self.wire.sock, self.woken, self._waker):
                    sock.close()
                work(files, self.functions)
                code = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                flush()
                os._exit(code)
        for file in files:
            os.close(file)
        self.children.add(pid)
        self.wire.send({"op": "forked", "pid": pid})

    def reap(self) -> None:
        """Reports children that ended. Their groups end first, while their numbers are theirs."""
        for pid in sorted(self.children):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                continue
            kill(pid)
            os.waitpid(pid, 0)
            self.children.discard(pid)
            died = ended.si_code != os.CLD_EXITED
            frame = {"op": "exited", "pid": pid, "signal": 0, "code": 0}
            frame["signal" if died else "code"] = ended.si_status
            self.wire.send(frame)


def kill(pid: int) -> None:
    """Ends a worker and all that it started."""
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def die_with(parent: int) -> None:
    """Has the kernel end this process with its parent, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def threads() -> list[str]:
    """The threads besides this one, which a fork does not copy."""
    known = sys.modules.get("threading")
    names = [t.name for t in known.enumerate() if t.ident] if known else ["MainThread"]
    if sys.platform == "linux":
        names += ["one of a library"] * (len(os.listdir("/proc/self/task")) - len(names))
    return names[1:]


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            continue


def work(files: list[int], functions: Functions) -> None:
    """The life of a worker: batches, until the loader is gone."""
    sock, output, memory = files[0], files[1], files[2:]
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    faulthandler.enable()
    if "numpy.random" in sys.modules:
        np.random.seed()  # else all workers draw the same, and hide that they draw at all
    wire = Wire(socket.socket(fileno=sock))
    slots = [(Shared(memory[i]), Shared(memory[i + 1])) for i in (0, 2)]
    while True:
        frame = wire.receive()
        if frame is None:
            return
        if frame["op"] == "setup":
            wire.send(setup(functions, frame["function"]))
        else:
            wire.send(answer(functions, frame, *slots[frame["slot"]]))


def setup(functions: Functions, name: str) -> Frame:
    try:
        functions.start(name)
    except BaseException as error:
        return {"broken": f"its setup failed: {said(error)}"}
    return {}


def answer(functions: Functions, frame: Frame, given: Shared, taken: Shared) -> Frame:
    """Runs a function on the batch of a slot, and writes what comes out beside it."""
    function = functions.load(frame["function"])
    try:
        call = functions.start(frame["function"])
    except BaseException as error:
        return {"broken": f"its setup failed: {said(error)}", "setup": True}
    view = memoryview(given.sized(frame["bytes"], False)).toreadonly()
    batch = Reader(view, function.input_types)
    place = frame["seed"], frame["source"], frame["file"]
    result = function.run(call, batch, place, frame.get("most", 0))
    if result.broken or result.raised:
        return {"broken": result.broken, "raised": result.raised}
    assert result.batch is not None
    size = result.batch.size()
    result.batch.write(taken.sized(size, True))
    errors, result.batch = result.errors, None
    if batch.kept():
        return {"broken": "it keeps a column after its call, whose memory is used again: copy it"}
    reply: Frame = {"bytes": size}
    if result.rows:
        reply["rows"] = result.rows
    if errors:
        reply["errors"] = limited(errors)
    return reply


def limited(errors: list[tuple[int, str]]) -> list[Frame]:
    """Errors of rows, short enough for a frame."""
    each = max(MAX_ERRORS // (len(errors) * 4), 16)
    return [{"row": row, "text": text[:each]} for row, text in errors]


def main() -> None:
    """The fork server, started by a loader."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The folder it was started in is no place of modules, unless PYTHONPATH says so.
    sys.path[:] = [p for p in sys.path if p]
    Server(socket.socket(fileno=CONTROL)).run()
