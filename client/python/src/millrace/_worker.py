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

import contextlib
import ctypes
import errno
import faulthandler
import gc
import inspect
import json
import mmap
import os
import platform
import select
import signal
import socket
import stat
import struct
import sys
from typing import Any

import numpy as np

from millrace._columns import Reader
from millrace._function import Lack, lacking, said
from millrace._loaded import ChangedError, Files, Functions
from millrace._missing import explained

PROTOCOL = 2
MAGIC = b"MRW1"
HEADER = struct.Struct("<4sI")
MAX_FRAME = 16 << 20
MAX_ERRORS = 4 << 20  # bytes of row errors in one answer
READ = 1 << 12  # bytes at a time: of nearly all frames more than there are
FILES = 6  # of a new worker: its socket, its output, and input and output memory twice
CLOSED = 113  # exit status of a worker whose socket was closed by a function
CONTROL = 3  # the descriptor of the loader's socket
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

STATUS = {"VmRSS": "held", "VmHWM": "peak"}  # what the kernel calls it, and the answer
ROLLUP = {"Private_Clean": "own", "Private_Dirty": "own", "Private_Hugetlb": "own"}

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
        self._map: mmap.mmap | None = None

    def sized(self, size: int, grow: bool) -> mmap.mmap:
        """The memory, of at least size bytes. Raises Lack if the system gives no more."""
        try:
            has = os.fstat(self._file).st_size if self._map is None else len(self._map)
            if size > has and grow:
                os.ftruncate(self._file, size)
            if size > has or self._map is None:
                self._map = mmap.mmap(self._file, max(size, has))
        except OSError as error:
            raise Lack(error, f"growing shared memory to {size} bytes") from error
        return self._map


class Server:
    """The fork server: one thread, one socket, and the children that it waits for."""

    def __init__(self, control: socket.socket) -> None:
        self.wire = Wire(control, FILES)
        files = Files()
        files.watch()
        self.functions = Functions(files)
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
            self.end()

    def serve(self, frame: Frame) -> None:
        if frame["op"] == "open":
            self.wire.send(self.open(frame["functions"]))
        elif frame["op"] == "fork":
            self.fork(frame.get("environ", {}))
        elif frame["op"] == "kill" and frame["pid"] in self.children:
            kill(frame["pid"])

    def open(self, names: list[str]) -> Frame:
        described = [describe(self.functions, name) for name in names]
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
        failed = 0
        try:
            pid = os.fork()
        except OSError as error:  # the workers that are there go on
            pid, failed = -1, error.errno or errno.EAGAIN
        if pid == 0:
            code, worker = 1, os.getpid()
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
            except SystemExit as end:
                code = status(end)
            except BaseException as error:
                sys.excepthook(*sys.exc_info())
                if os.getpid() == worker and lacking(error):
                    flush()
                    end_from_outside()
                if os.getpid() == worker and closed(files[0]):
                    code = CLOSED
            finally:
                flush()
                os._exit(code)
        for file in files:
            os.close(file)
        if failed:
            self.wire.send({"op": "forked", "pid": 0, "errno": failed})
            return
        self.children.add(pid)
        self.wire.send({"op": "forked", "pid": pid})

    def end(self) -> None:
        """Ends the workers and what they started, which comes to this process when they end."""
        for pid in self.children:
            kill(pid)
        while sys.platform == "linux":  # elsewhere nothing comes
            for pid in children():
                kill(pid)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def reap(self) -> None:
        """Reports workers that ended. Their groups end first, while their numbers are theirs."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            pid = ended.si_pid
            if pid in self.children:
                kill(pid)
            os.waitpid(pid, 0)
            if pid not in self.children:  # a worker, or an import, started it
                continue
            self.children.discard(pid)
            died = ended.si_code != os.CLD_EXITED
            frame = {"op": "exited", "pid": pid, "signal": 0, "code": 0}
            frame["signal" if died else "code"] = ended.si_status
            self.wire.send(frame)


def describe(functions: Functions, name: str) -> Frame:
    """What a function declares, or why it cannot be loaded."""
    try:
        f = functions.load(name)
        digest = functions.digest(name)
    except ChangedError as error:
        return {"name": name, "error": str(error), "changed": True}
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


def kill(pid: int) -> None:
    """Ends a worker and all that it started."""
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def children() -> list[int]:
    """The children of this process, those included whose parents ended."""
    found, me = [], str(os.getpid())
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                stat = file.read().decode("utf-8", "replace")
        except OSError:  # no process, or it ended
            continue
        if stat.rpartition(")")[2].split()[1] == me:  # behind its name and state
            found.append(int(name))
    return found


def adopt() -> None:
    """Has the kernel give this process what its workers started when they end, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


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


def status(end: SystemExit) -> int:
    """The exit status that Python gives a process that ends so."""
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def closed(sock: int) -> bool:
    """Says whether a descriptor is no socket any more."""
    try:
        return not stat.S_ISSOCK(os.fstat(sock).st_mode)
    except OSError:
        return True


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
        check(functions, frame)
        if frame["op"] == "setup":
            wire.send(setup(functions, frame["function"]))
        else:
            wire.send(answered(functions, frame, *slots[frame["slot"]]))


def check(functions: Functions, frame: Frame) -> None:
    """Ends a worker that is older than an import, if its own import would be of another file.

    The next one has what the server imported. It ends as if from outside: no row is to blame.
    """
    try:
        digest = functions.digest(frame["function"])
        if frame.get("digest", digest) == digest:  # earlier loaders say none
            return
        why = f"the file of {frame['function']} changed since it was imported"
    except ChangedError as error:
        why = str(error)
    print(why + ": another worker has what was imported", file=sys.stderr)
    end_from_outside()


def end_from_outside() -> None:
    """Ends this process as another one would, so that no row is to blame."""
    os.kill(os.getpid(), signal.SIGKILL)


def leave(process: int) -> None:
    """Ends a process that a function of this one forked, and that came back: it answers nothing."""
    if os.getpid() != process:
        sys.exit()


def setup(functions: Functions, name: str) -> Frame:
    process = os.getpid()
    try:
        functions.start(name)
    except BaseException as error:
        if os.getpid() != process:
            raise
        return {"broken": f"its setup failed: {said(error)}"}  # the call that is due says why
    leave(process)
    return memory()


def memory() -> Frame:
    """Bytes that this process holds, those of its own, and the most that it ever held.

    The loader does not measure that after a setup: the first batch is at work by then.
    """
    found: Frame = {}
    for file, names in (("status", STATUS), ("smaps_rollup", ROLLUP)):
        with contextlib.suppress(OSError), open(f"/proc/self/{file}") as lines:  # no Linux
            for line in lines:
                name, _, rest = line.partition(":")
                if name in names:
                    found[names[name]] = found.get(names[name], 0) + (int(rest.split()[0]) << 10)
    return found


def answered(functions: Functions, frame: Frame, given: Shared, taken: Shared) -> Frame:
    """An answer, or that this machine has no more of something, which is no row's fault."""
    process = os.getpid()
    try:
        return answer(functions, frame, given, taken)
    except Exception as error:
        if os.getpid() != process or not lacking(error):
            raise
        return {"broken": said(error), "errno": lacking(error)}


def answer(functions: Functions, frame: Frame, given: Shared, taken: Shared) -> Frame:
    """Runs a function on the batch of a slot, and writes what comes out beside it."""
    function, process = functions.load(frame["function"]), os.getpid()
    try:
        call = functions.start(frame["function"])
    except BaseException as error:
        if os.getpid() != process or lacking(error):
            raise
        return {"broken": f"its setup failed: {said(error)}", "setup": True}
    view = memoryview(given.sized(frame["bytes"], False)).toreadonly()
    batch = Reader(view, function.input_types)
    place = frame["seed"], frame["source"], frame["file"]
    result = function.run(call, batch, place, frame.get("most", 0))
    leave(process)
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
    adopt()
    Server(socket.socket(fileno=CONTROL)).run()
