"""Where a rank stands to its constructor: another container, another user, another kernel."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

import pytest
from processes import needs_binary, real_service, status, until, write_job
from test_service import plain

import millrace
from millrace import shared

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux")
pytestmark = [linux, needs_binary]

STEPS = 6
PLACE = {"dp_rank": 0, "dp_size": 1}

# A rank in a process of its own. It loads all that it needs before it becomes another user.
RANK = """
import json, os, sys
sys.path[:0] = {paths!r}
import grpc, numpy
from test_service import plain
import millrace
grpc.insecure_channel("127.0.0.1:1").close()  # the first one imports more
if {user}:
    os.setgroups([]), os.setgid({user}), os.setuid({user})
with millrace.connect({address!r}, dp_rank=0, dp_size=1, way={way!r}) as loader:
    print(json.dumps([str(plain(next(loader))) for _ in range({steps})]), flush=True)
    sys.stdin.read()
"""


def start(address, way=None, user=0, before=(), **environment):
    """Starts a rank, by a command if there is one. It stays until its input ends."""
    here = pathlib.Path(__file__).parent
    paths = [str(here), str(pathlib.Path(millrace.__file__).parent.parent)]
    code = RANK.format(paths=paths, address=address, way=way, user=user, steps=STEPS)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [*before, sys.executable, "-c", code]
    return subprocess.Popen(command, env={**os.environ, **environment}, **pipes)


def taken(rank):
    """Returns the batches of a rank."""
    line = rank.stdout.readline()
    assert line, f"the rank ended with {rank.wait()}"
    return json.loads(line)


def reference(address):
    with millrace.connect(address, way="stream", start="beginning", **PLACE) as loader:
        return [str(plain(next(loader))) for _ in range(STEPS)]


def test_two_containers_of_a_pod_share_memory_by_one_empty_dir(tmp_path, monkeypatch):
    """The rank has its own mounts, processes and IPC, and the folder at another path."""
    spaces = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child"]
    if not shutil.which("unshare"):
        pytest.skip("there is no unshare to make namespaces with")
    tried = subprocess.run([*spaces, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"namespaces are not permitted here: {tried.stderr.strip()}")
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    mount = f'mount --bind {here} {there} && mount -t tmpfs none {here} && exec "$@"'
    container = [*spaces, "sh", "-c", mount, "sh"]
    monkeypatch.setenv(shared.DIR, str(here))
    with real_service(write_job(tmp_path / "job", dp=1)) as address:
        found = {shared.DIR: str(there)}
        with start(address, way="shared", before=container, **found) as rank:
            got = taken(rank)
            until(lambda: "ranks by shared memory: 1: rank dp=0" in status(address))
            rank.communicate()
        with start(address, way="shared", before=container) as lost:  # it looks where nothing is
            lost.communicate()
            assert lost.returncode != 0
        assert got == reference(address)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a rank as another user")
def test_a_rank_of_another_user_has_a_stream_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("MILLRACE_ACCESS_KEY", "0123456789abcdef")  # another user cannot read it
    with real_service(write_job(tmp_path, dp=1)) as address:
        with start(address, user=65534) as rank:
            got = taken(rank)
            why = r"ranks by a stream: 1, since the socket of the constructor cannot be reached .*"
            until(lambda: re.search(why + r"Permission denied: rank dp=0", status(address)))
            rank.communicate()
        assert got == reference(address)


# The numbers of fcntl and memfd_create, by machine.
CALLS = {"x86_64": (72, 319), "aarch64": (25, 279)}

# Runs a command under a filter of system calls, which is a program for the kernel.
FILTERED = """
import ctypes, os, sys
program = bytes.fromhex(sys.argv[1])
held = ctypes.create_string_buffer(program, len(program))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("at", ctypes.c_void_p)]
given = Program(len(program) // 8, ctypes.addressof(held))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
if libc.prctl(22, 2, ctypes.byref(given), 0, 0):  # PR_SET_SECCOMP, a filter
    sys.exit(77)
os.execv(sys.argv[2], sys.argv[2:])
"""


def refusing(call, argument, error):
    """Returns the program that has a call fail if its second argument is this one; any if 0."""
    load, equal, result = 0x20, 0x15, 0x06
    steps = [(load, 0, 0, 0), (equal, 0, 3 if argument else 1, call)]
    if argument:
        steps += [(load, 0, 0, 24), (equal, 0, 1, argument)]
    steps += [(result, 0, 0, 0x50000 | error), (result, 0, 0, 0x7FFF0000)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps).hex()


@pytest.mark.parametrize(
    ("call", "argument", "error", "why"),
    [
        (0, 1033, 22, "sealing memory: invalid argument"),  # F_ADD_SEALS before Linux 5.1
        (1, 0, 38, "making memory without a name: function not implemented"),  # no memfd_create
    ],
)
def test_a_kernel_without_sealed_memory_gives_a_stream(tmp_path, call, argument, error, why):
    numbers = CALLS.get(os.uname().machine)
    if numbers is None:
        pytest.skip(f"the numbers of calls on {os.uname().machine} are not known here")
    program = refusing(numbers[call], argument, error)
    before = [sys.executable, "-c", FILTERED, program]
    if subprocess.run([*before, "/bin/true"]).returncode == 77:
        pytest.skip("filters of system calls are not permitted here")
    with real_service(write_job(tmp_path, dp=1), before=before) as address:
        with millrace.connect(address, **PLACE) as loader:
            got = [str(plain(next(loader))) for _ in range(STEPS)]
            said = f"ranks by a stream: 1, since the constructor shares no memory: {why}: rank dp=0"
            until(lambda: said in status(address))
        assert got == reference(address)
