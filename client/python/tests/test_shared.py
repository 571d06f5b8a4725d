"""Batches in memory that the constructor and a rank map."""

from __future__ import annotations

import array
import contextlib
import gc
import mmap
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

import fake
import numpy as np
import pytest
from processes import Roles, needs_binary, real_service, status, until, write_job
from test_service import consume, in_threads, plain, ranks_of

import millrace
from millrace import LostError, UserError, messages, rpc, shared
from millrace.attention import Attention
from millrace.errors import BugError
from millrace.memory import Lent
from millrace.receive import Array
from millrace.stream import Position
from millrace.table import HEAD

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux")
pytestmark = linux

NAME = "millrace"


def made(size):
    """Returns a descriptor of sealed memory, and a mapping that can be written to."""
    import fcntl

    fd = os.memfd_create(NAME, os.MFD_ALLOW_SEALING)
    os.truncate(fd, size)
    memory = mmap.mmap(fd, size)
    fcntl.fcntl(fd, 1033, 0x1 | 0x2 | 0x4 | 0x10)
    return fd, memory


def held(pid):
    """Returns how many mappings of such memory a process has."""
    return pathlib.Path(f"/proc/{pid}/maps").read_text().count(f"/memfd:{NAME} ")


def test_a_slot_is_free_when_the_last_view_is_gone():
    fd, memory = made(4096)
    freed: list[int] = []
    ring = shared._Ring(1, mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ))
    memory[64:68] = b"\x07\0\0\0"
    whole: Array = ring.slot(64, 256, 9, freed)
    tensor = np.ndarray((8, 8), "<i4", whole, 0)
    del whole
    rows = tensor[2:]
    column, reshaped = tensor.T[0], tensor.reshape(-1)
    assert int(tensor[0, 0]) == 7
    del tensor, rows
    gc.collect()
    assert freed == []
    last = memoryview(column)
    del column
    gc.collect()
    assert freed == []
    del last, reshaped
    assert freed == [9]
    with pytest.raises(ValueError, match="read-only"):
        ring.slot(0, 8, 1, [])[0] = 1
    os.close(fd)


class Constructor:
    """The other side of a line, by hand."""

    def __init__(self, folder):
        self.path = str(folder / "s")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()

    def line(self, next_step=0, until=3, listens=0):
        hello = messages.DeliverHello(step=next_step, until=until)
        given = messages.ShareReply(socket=self.path, ticket=b"t" * 16, listens=listens)
        made = shared.Line(given, hello, messages.JoinReply(constructor="c:1"), Attention())
        self.socket, _ = self._listener.accept()
        return made

    def send(self, kind, payload, number=0, fds=()):
        head = shared.HEAD.pack(kind, number, len(payload))
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([head + payload], control)

    def heard(self):
        kind, _, size = shared.HEAD.unpack(self.socket.recv(16, socket.MSG_WAITALL))
        return kind, self.socket.recv(size, socket.MSG_WAITALL)


@pytest.fixture
def other(tmp_path):
    return Constructor(tmp_path)


def receive(line):
    return line.receive("waiting", lambda: False, lambda waits: None)


def test_faults_on_a_line(other):
    cases = [
        (shared.IN_RING, shared.PLACE.pack(1, 0, 64) + b"x" * 80, BugError, "not a table"),
        (shared.NEW_RING, shared.PLACE.pack(1, 0, 64), BugError, "no descriptor came"),
        (99, b"", BugError, "kind 99"),
        (shared.REFUSAL, b"it is elsewhere", LostError, "elsewhere"),
    ]
    for kind, payload, error, text in cases:
        line = other.line()
        other.send(kind, payload, 10)  # ABORTED, of a refusal
        with pytest.raises(error, match=text):
            receive(line)
        line.end()
    line = other.line()
    other.heard()
    other.socket.sendall(shared.HEAD.pack(shared.WAITING, 0, 100) + b"half")
    other.socket.close()
    with pytest.raises(LostError, match="ended in a message"):
        receive(line)
    line.end()


def test_a_line_that_has_ended_brings_no_step_that_came_before(other):
    """Its memory is let go of; the words of further steps may have been read with those of one."""
    line = other.line()
    fd, _ = made(1 << 16)
    other.send(shared.NEW_RING, shared.PLACE.pack(1, 0, 1 << 16), fds=[fd])
    os.close(fd)
    for step in range(3):
        (first, *_) = map(messages.Frame.decode, fake.Service().parts(step, (0, 0, 0, 0)))
        place = shared.PLACE.pack(1, step << 14, HEAD.unpack_from(first.header)[4])
        other.send(shared.IN_RING, place + first.header)
    assert receive(line).step == 0
    line.end()
    with pytest.raises(LostError, match="the line to the constructor broke"):
        receive(line)
    with pytest.raises(rpc.Closed):
        line.receive("waiting", lambda: True, lambda waits: None)


def test_memory_that_may_shrink_is_not_mapped(other):
    line = other.line()
    fd = os.memfd_create("open")
    os.truncate(fd, 4096)
    other.send(shared.NEW_RING, shared.PLACE.pack(1, 0, 4096), fds=[fd])
    with pytest.raises(BugError, match="not sealed"):
        receive(line)
    os.close(fd)
    line.end()


@pytest.mark.parametrize(("listens", "least"), [(0, 0.4), (10, 1.8)])
def test_a_constructor_that_says_nothing_is_noticed(other, listens, least):
    line = other.line(listens=listens)
    _, hello = other.heard()
    assert messages.DeliverHello.decode(hello[16:]).listens == listens
    other.send(shared.WAITING, messages.Waiting().encode())
    began = time.monotonic()
    with pytest.raises(LostError, match="says nothing"):
        receive(line)
    assert least < time.monotonic() - began < least + 4
    line.end()


def test_a_line_that_is_not_taken_is_given_up(tmp_path, serve, open_loader):
    queued = Constructor(tmp_path)  # which takes none
    service = serve(steps=5)
    service.streams = service.waits = True
    service.share = lambda _: messages.ShareReply(socket=queued.path, ticket=b"t" * 16)
    steps = [loader.step for loader in [open_loader(service)] for _ in loader]
    assert steps == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    hello = service.requests("Deliver")[0]
    assert hello.unshared == "the constructor has not taken the line to its socket"
    # Who wants memory joins again, and hears whether that is the constructor's doing.
    joins = service.count("Join")
    asked = []

    def share(_):
        asked.append(service.count("Join"))
        taken = len(asked) == 1
        return messages.ShareReply(
            socket=queued.path if taken else "", ticket=b"t" * 16, reason="there is no room"
        )

    service.share = share
    with pytest.raises(UserError, match="way is 'shared', and there is no room"):
        next(open_loader(service, way="shared", start="beginning"))
    assert asked == [joins + 1, joins + 2]


def test_what_is_freed_goes_along_with_a_position(other):
    line = other.line()
    assert other.heard()[0] == shared.HELLO
    line._freed.extend([4, 5])
    line.tell(Position(5, 8), 2, 33)
    kind, payload = other.heard()
    numbers = [int.from_bytes(payload[at : at + 8], "little") for at in range(0, len(payload), 8)]
    assert kind == shared.WHERE and numbers[:4] == [5, 8, 2, 33] and sorted(numbers[4:]) == [4, 5]
    line.end()


def test_why_not(serve, open_loader, monkeypatch):
    service = serve(steps=3)
    with pytest.raises(UserError, match="of a version that shares none"):
        next(open_loader(service, way="shared"))
    with pytest.raises(UserError, match="switched off"):
        next(open_loader(service, way="shared", shared_dir="none"))
    monkeypatch.setattr(shared, "machine", lambda: "")
    with pytest.raises(UserError, match="takes Linux"):
        next(open_loader(service, way="shared"))
    assert len(list(open_loader(service))) == 6


@needs_binary
@pytest.mark.parametrize("sizes", [{"dp": 2, "cp": 2}, {"dp": 1, "tp": 2}])
def test_batches_are_those_of_the_stream(tmp_path, sizes):
    spec = write_job(tmp_path, **sizes)
    got = {}
    for way in ("shared", "stream", None):

        def run(place, prefetch, way=way):
            with millrace.connect(address, prefetch=prefetch, way=way, **place) as loader:
                return [plain(next(loader)) for _ in range(20)]

        with real_service(spec) as address:
            work = [(place, at % 2 * 2) for at, place in enumerate(ranks_of(sizes))]
            got[way] = in_threads(run, work)
    assert got["shared"] == got["stream"] == got[None]


@needs_binary
def test_the_status_says_which_way_and_why(tmp_path):
    spec = write_job(tmp_path)
    with real_service(spec) as address:
        ranks = [
            millrace.connect(address, dp_rank=0, dp_size=2),
            millrace.connect(address, dp_rank=1, dp_size=2, shared_dir="none"),
        ]
        for loader in ranks:
            next(loader)

        until(lambda: all(f"by {way}" in status(address) for way in ("a stream", "shared memory")))
        said = status(address)
        assert "ranks by shared memory: 1: rank dp=0 cp=0 pp=0 tp=0\n" in said
        why = "since sharing memory is switched off for the rank: rank dp=1 cp=0 pp=0 tp=0\n"
        assert f"ranks by a stream: 1, {why}" in said
        for loader in ranks:
            loader.close()


@needs_binary
def test_the_status_says_that_no_memory_is_shared(tmp_path):
    spec = write_job(tmp_path, dp=1)
    with spec.open("a") as file:
        file.write("resources: {constructor_buffer: 128KiB}\n")
    place = {"dp_rank": 0, "dp_size": 1}
    with real_service(spec) as address, millrace.connect(address, way="shared", **place) as loader:
        next(loader)
        next(loader)
        why = "since half of the constructor's buffer, the most that ranks map, has no room left"
        until(lambda: f"by a socket, without shared memory: 1, {why}" in status(address))


@needs_binary
@pytest.mark.parametrize("way", ["shared", "stream", "calls"])
def test_a_loader_that_is_closed_holds_no_memory(tmp_path, way):
    """Trainers switch the collector of cycles off, or have it run rarely."""
    spec = write_job(tmp_path, dp=1)
    before = held(os.getpid())

    def lent():
        return sum(isinstance(one, Lent) and bool(one.__dict__) for one in gc.get_objects())

    with real_service(spec) as address:
        gc.collect()
        lent_before = lent()
        gc.disable()
        try:
            for _ in range(3):
                loader = millrace.connect(address, dp_rank=0, dp_size=1, way=way)
                batches = [next(loader) for _ in range(10)]
                mapped = held(os.getpid()) - before
                loader.close()
                del batches, loader
            assert mapped == (way == "shared")
            until(lambda: lent() == lent_before and held(os.getpid()) == before)
        finally:
            gc.enable()


@needs_binary
def test_another_folder_and_none(tmp_path, monkeypatch):
    spec = write_job(tmp_path, dp=1)
    monkeypatch.setenv(shared.DIR, str(tmp_path / "pod"))
    with real_service(spec) as address:
        monkeypatch.delenv(shared.DIR)
        until(lambda: "the first trainer to join" in status(address))  # its constructor listens
        (tmp_path / "pod").rename(tmp_path / "mounted")  # as another container sees it
        place = {"dp_rank": 0, "dp_size": 1}
        refused = pytest.raises(UserError, match="cannot be reached from here")
        with millrace.connect(address, way="shared", **place) as loader, refused:
            next(loader)
        there = {"way": "shared", "shared_dir": str(tmp_path / "mounted"), **place}
        with millrace.connect(address, **there) as loader:
            assert len(plain(next(loader))) > 3


RANK = """
import sys, time
sys.path[:0] = [{path!r}]
import millrace
loader = millrace.connect({address!r}, dp_rank=1, dp_size=2, way="shared")
for batch in loader:
    print(loader.step, flush=True)
"""


@needs_binary
def test_memory_of_a_rank_that_is_killed_is_given_back(tmp_path):
    roles = Roles(write_job(tmp_path))
    source = str(pathlib.Path(millrace.__file__).parent.parent)
    code = RANK.format(path=source, address=roles.address)
    try:
        constructor = roles.processes[2].pid
        with millrace.connect(roles.address, dp_rank=0, dp_size=2, way="shared") as loader:
            command = [sys.executable, "-c", code]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                thread = threading.Thread(target=train, args=(loader,))
                thread.start()
                for _ in range(6):
                    process.stdout.readline()
                until(lambda: held(constructor) == 2)
                process.kill()
            until(lambda: held(constructor) == 1)
        thread.join()
        until(lambda: held(constructor) == 0)
    finally:
        roles.stop()


def train(loader):
    with contextlib.suppress(
        rpc.Closed, UserError
    ):  # which of them says whether it waited when it was closed
        for _ in loader:
            pass


@needs_binary
def test_a_constructor_that_is_killed_takes_no_batch_along(tmp_path):
    roles = Roles(write_job(tmp_path, dp=1))
    try:
        place = {"dp_rank": 0, "dp_size": 1}
        want, _ = consume(roles.address, place, 30)
        with millrace.connect(roles.address, start="beginning", **place) as loader:
            taken = [next(loader) for _ in range(6)]
            roles.processes[2].kill()
            roles.processes[2].wait()
            roles.processes.append(roles._start(["constructor", "--planner", roles.address]))
            taken += [next(loader) for _ in range(24)]
            assert [plain(batch) for batch in taken] == want
    finally:
        roles.stop()


@needs_binary
def test_a_constructor_short_of_descriptors(tmp_path):
    import resource

    sizes = {"dp": 16}
    spec, places = write_job(tmp_path, rows=1, **{**sizes, "batch": ""}), ranks_of(sizes)
    spec.write_text(spec.read_text().replace("sequences: 8", "sequences: 32"))
    with real_service(spec) as address:
        streams = [({**place, "way": "stream"},) for place in places]
        want = in_threads(lambda place: consume(address, place, 6), streams)
    roles = Roles(spec)
    try:
        constructor = roles.processes[2].pid
        roles.wait()
        used = len(os.listdir(f"/proc/{constructor}/fd"))

        def leave(more):
            limit = used + more
            resource.prlimit(constructor, resource.RLIMIT_NOFILE, (limit, limit))
            return limit

        leave(36)  # enough for a connection of each rank, and not for a line of each
        got = in_threads(lambda place: consume(roles.address, place, 6), [(p,) for p in places])
        assert [batches for batches, _ in got] == [batches for batches, _ in want]
        limit = leave(10)
        why = rf"the constructor has too few file descriptors left \(its limit is {limit}\): raise"
        with pytest.raises(UserError, match=f"way is 'shared', and {why}"):
            consume(roles.address, {**places[0], "way": "shared"}, 1, got[0][1][-1])
    finally:
        roles.stop()
