"""A look at a running job changes nothing."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from concurrent import futures

import grpc
import pytest
from processes import BINARY, needs_binary, real_service, until, write_job
from test_service import in_threads, plain, ranks_of

import millrace
from millrace import messages

PER_STEP = 2


def status(address):
    out = subprocess.run([BINARY, "status", address, "--json"], capture_output=True, check=True)
    return json.loads(out.stdout)


def delivered(told):
    return sum(constructor["delivered_batches"] for constructor in told["constructors"])


def take(loader, steps):
    return [plain(next(loader)) for _ in range(steps * PER_STEP)]


@needs_binary
def test_peek_changes_nothing(tmp_path):
    spec = write_job(tmp_path, dp=2, cp=2)
    places = ranks_of({"dp": 2, "cp": 2})
    with real_service(spec) as address:
        loaders = [millrace.connect(address, prefetch=0, timeout=60, **p) for p in places]
        want = in_threads(take, [(loader, 12) for loader in loaders])
        end = loaders[0].state_dict()
        for loader in loaders:
            loader.close()
    with real_service(spec) as address:
        before = millrace.peek(address, 0)  # nobody has joined yet
        assert [plain(b) for b in before.batches] == want[0][:PER_STEP]
        loaders = [millrace.connect(address, prefetch=0, timeout=60, **p) for p in places]
        got = in_threads(take, [(loader, 5) for loader in loaders])
        until(
            lambda: delivered(status(address)) == 5 * len(places)
        )  # constructors report once a second
        told = status(address)
        for at, place in enumerate(places):
            ranks = {f"{axis}_rank": place[f"{axis}_rank"] for axis in ("dp", "cp", "pp", "tp")}
            for step in range(4, 8):  # given already, and planned ahead
                seen = millrace.peek(address, step, **ranks)
                assert seen.step == step
                assert [plain(b) for b in seen.batches] == want[at][step * 2 : step * 2 + 2]
            assert millrace.peek(address, **ranks).step >= 7
        for row in millrace.peek(address, 5, dp_rank=1).lineage[0]:
            assert {s.source for s in row.segments} <= {"stories", "notes"}
        for step in (0, 3, 99):
            with pytest.raises(millrace.UserError, match=r"steps 4 to \d+ are held.*preview JOB"):
                millrace.peek(address, step)
        with pytest.raises(millrace.UserError, match="dp ranks are 0 to 1"):
            millrace.peek(address, dp_rank=2)
        now = status(address)
        for field in ("steps_acked", "steps_planned", "generation", "digest", "joined"):
            assert now.get(field) == told.get(field), field
        assert delivered(now) == delivered(told)
        more = in_threads(take, [(loader, 7) for loader in loaders])
        assert [a + b for a, b in zip(got, more)] == want
        assert loaders[0].state_dict() == end
        assert all(loader.stats.retries == 0 for loader in loaders)
        for loader in loaders:
            loader.close()


def test_peek_says_that_nobody_is_there():
    with pytest.raises(
        millrace.LostError, match=r"looking at the batch of rank dp=0 .*127.0.0.1:9"
    ):
        millrace.peek("127.0.0.1:9", timeout=0.5)


class Stuck:
    """A planner, and a constructor that never has the step."""

    def __init__(self, says):
        self.says = says  # seconds of idling that it admits to in each word; None: it says nothing
        self.over = threading.Event()
        self.heard = []
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        for service, handlers in {
            "Planner": {"Locate": grpc.unary_unary_rpc_method_handler(self.locate)},
            "Constructor": {"Peek": grpc.unary_stream_rpc_method_handler(self.peek)},
        }.items():
            handler = grpc.method_handlers_generic_handler("millrace.v1." + service, handlers)
            self.server.add_generic_rpc_handlers([handler])
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def locate(self, _raw, _context):
        return messages.JoinReply(fetches=True, constructor=self.address).encode()

    def peek(self, raw, _context):
        self.heard.append(messages.PeekRequest.decode(raw))
        while not self.over.wait(0.1):
            if self.says is not None:
                waiting = messages.Waiting("for a loader", idle_ms=int(self.says * 1000))
                yield messages.Frame(waiting=waiting).encode()


@pytest.mark.parametrize(
    ("says", "timeout", "stall", "text"),
    [
        (None, 60, 1.0, "nothing has moved for 1 s: nobody has answered"),
        (9.0, 60, 1.0, "nothing has moved for 1 s: the constructor at .* waits: for a loader"),
        (0.0, 2.0, 1.0, "looking at the batch|has waited 2 s"),  # things move: all of the time
    ],
)
def test_a_look_ends_when_nothing_moves(says, timeout, stall, text):
    service = Stuck(says)
    try:
        began = time.monotonic()
        with pytest.raises(millrace.LostError, match=text) as caught:
            millrace.peek(service.address, 3, timeout=timeout, stall_timeout=stall)
        assert min(timeout, stall) - 0.1 < time.monotonic() - began < 20
        if says == 0.0:
            assert time.monotonic() - began > 1.9
        else:
            assert isinstance(caught.value, millrace.WaitError)
        assert service.heard[0].hears
    finally:
        service.over.set()
        service.server.stop(0).wait()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"step": -1}, "step is -1: steps count up from 0"),
        ({"step": 1 << 64}, "step is 18446744073709551616: steps count up from 0"),
        ({"dp_rank": -1}, "dp_rank is -1: ranks of this axis go from 0"),
        ({"cp_rank": 1 << 32}, "cp_rank is 4294967296: ranks of this axis go from 0"),
        ({"tp_rank": None}, "tp_rank is None: give a whole number"),
        ({"tls_cert": "own.pem"}, "tls_cert and tls_key go together"),
    ],
)
def test_a_look_at_what_cannot_be_asks_nobody(options, words):
    with pytest.raises(millrace.UserError, match=words):
        millrace.peek("127.0.0.1:9", **options)


def test_peek_refuses_no_time():
    with pytest.raises(millrace.UserError, match="stall_timeout is 0"):
        millrace.peek("127.0.0.1:9", stall_timeout=0)
