"""A call whose service does not move ends with an error that names who waits for whom."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time

import pytest
from processes import Roles, needs_binary, write_job

import millrace

PREFETCH = pytest.mark.parametrize("prefetch", [0, 2])

# Seconds: far below the default.
STALL = 6.0

PLANNER, LOADER, CONSTRUCTOR = range(3)  # of Roles.processes


def waited(roles, prefetch, role, sent):
    """Takes steps until a role was sent a signal and none comes any more; returns the error."""
    with millrace.connect(
        roles.address, dp_rank=0, dp_size=1, prefetch=prefetch, stall_timeout=STALL, timeout=120
    ) as loader:
        for _ in range(6):
            next(loader)
        roles.processes[role].send_signal(sent)
        began = time.monotonic()
        with pytest.raises(millrace.WaitError) as caught:
            while True:
                next(loader)
        assert time.monotonic() - began < 5 * STALL
    error = caught.value
    assert isinstance(error, millrace.LostError)
    assert error.idle >= STALL and error.waited >= STALL and not error.ranks
    assert str(error).startswith("rank dp=0 cp=0 pp=0 tp=0 has waited ")
    return " | ".join([*error.chain, str(error)])


@needs_binary
@PREFETCH
@pytest.mark.parametrize(
    ("role", "sent", "words"),
    [
        (CONSTRUCTOR, signal.SIGSTOP, ["the constructor at ", "is lost", "(said|says) nothing"]),
        (PLANNER, signal.SIGKILL, ["there has been no planner for ", "the planner at ", "refused"]),
        (PLANNER, signal.SIGSTOP, ["the constructor at ", "there has been no planner for "]),
        (LOADER, signal.SIGSTOP, ["the constructor at ", " waits: ", "has said nothing for "]),
    ],
)
def test_each_hop_is_named(tmp_path, prefetch, role, sent, words):
    roles = Roles(write_job(tmp_path / "job", dp=1))
    try:
        roles.wait()
        text = waited(roles, prefetch, role, sent)
        assert all(re.search(word, text) for word in words), text
        assert "is lost: rank dp=0 cp=0 pp=0 tp=0 joining" not in text.split("the planner at ")[0]
    finally:
        roles.stop()


@PREFETCH
@pytest.mark.parametrize("count", [1, 2])
def test_nobody_listens(prefetch, count):
    bound = [socket.socket() for _ in range(count)]  # so that nobody else listens there
    for one in bound:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in bound]
    loader = millrace.connect(
        ",".join(addresses), dp_rank=0, dp_size=1, prefetch=prefetch, stall_timeout=2
    )
    began = time.monotonic()
    with pytest.raises(millrace.WaitError) as caught:
        next(loader)
    assert 1.5 < time.monotonic() - began < 20
    loader.close()
    for one in bound:
        one.close()
    for address in addresses:
        assert f"the planner at {address} is lost: " in str(caught.value)


@needs_binary
@PREFETCH
def test_other_ranks_are_waited_for(tmp_path, prefetch):
    """They may take longer than the service, up to ``timeout``; who never comes is named."""
    roles = Roles(write_job(tmp_path / "job", dp=2))
    try:
        roles.wait()
        loader = millrace.connect(
            roles.address, dp_rank=0, dp_size=2, prefetch=prefetch, stall_timeout=2, timeout=7
        )
        began = time.monotonic()
        with loader, pytest.raises(millrace.WaitError) as caught:
            while True:
                next(loader)
        assert time.monotonic() - began > 6
        assert caught.value.ranks and "rank dp=1 cp=0 pp=0 tp=0" in str(caught.value)
    finally:
        roles.stop()


def test_requests_say_how_long_the_trainer_stood_still(serve, open_loader):
    service = serve(steps=6)
    service.gate.clear()
    threading.Timer(2, service.gate.set).start()
    loader = open_loader(service, prefetch=0)
    next(loader)
    service.gate.clear()
    threading.Timer(0.3, service.gate.set).start()
    for _ in loader:
        pass
    said = [r.waited_us for r in service.requests("Batch")]
    # 0 would be a client that does not say. The 2 s of the start are no stall.
    assert said[0] == 1 and said[1] < 1_500_000
    assert said == sorted(said)
    assert 200_000 < said[-1] <= loader.stats.wait_seconds * 1e6 + 1


@PREFETCH
@pytest.mark.parametrize("way", ["stream", "calls"])
def test_the_wait_under_way_is_told(serve, open_loader, prefetch, way):
    """What is asked again meanwhile says it: the constructor may be another one by then."""
    service = serve()
    service.streams, service.waits, service.mute = True, True, {4: 2.0}
    loader = open_loader(service, prefetch=prefetch, way=way)
    for _ in range(10):
        next(loader)
    method = "Deliver" if way == "stream" else "Batch"
    said = [r.waited_us for r in service.requests(method) if r.step >= 4]
    assert 300_000 < max(said) <= loader.stats.wait_seconds * 1e6 + 1


@PREFETCH
def test_a_trainer_that_stands_still_says_so(serve, open_loader, monkeypatch, prefetch):
    monkeypatch.setattr("millrace.stream.STANDS_EVERY", 0.1)
    service = serve()
    service.streams, service.waits = True, True
    loader = open_loader(service, prefetch=prefetch)
    next(loader)
    service.says, service.pause = 6, 0.1
    for _ in range(2 * prefetch + 3):
        next(loader)
    said = [(r.until, r.waited_us) for r in service.requests("Told")]
    assert said == sorted(said)
    until = said[-1][0]
    waits = [waited for to, waited in said if to == until]
    assert len(waits) >= 3 and waits[-1] > waits[0] + 150_000
