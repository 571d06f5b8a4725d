"""Pauses between attempts grow, have a limit, and differ from rank to rank."""

from __future__ import annotations

from typing import ClassVar

import fake
import grpc
import pytest

from millrace import acks, backoff, rpc
from millrace.backoff import GROWTH, JITTER, Backoff
from millrace.errors import LostError

FIRST, LONGEST = backoff.FIRST, backoff.LONGEST  # before conftest.py makes them short

# Microseconds that internal/rpc.Backoff gives for this rank.
RANK = "rank dp=3 cp=0 pp=0 tp=1"
GO = [
    *(41031, 53442, 69607, 90661, 118082, 153797, 200313, 260898),
    *(339804, 593016, 769844, 999397, 1113737, 1124674, 1123112, 1121549),
]


@pytest.fixture(autouse=True)
def real(monkeypatch):
    monkeypatch.setattr(backoff, "FIRST", FIRST)
    monkeypatch.setattr(backoff, "LONGEST", LONGEST)


def ranks(count):
    return [f"rank dp={n} cp=0 pp=0 tp=0" for n in range(count)]


def test_pauses_are_those_of_go():
    pauses = Backoff(RANK)
    assert [int(pauses.next() * 1e6) for _ in GO] == GO


def test_pauses_grow_up_to_a_limit_and_are_moved_by_up_to_a_fifth():
    for name in ranks(100):
        pauses, want, all_of_them = Backoff(name), FIRST, []
        for _ in range(40):
            pause = pauses.next()
            assert want * (1 - JITTER) <= pause <= want * (1 + JITTER)
            all_of_them.append(pause)
            want = min(want * GROWTH, LONGEST)
        assert max(all_of_them) <= LONGEST * (1 + JITTER)
        assert sum(all_of_them[10:20]) > 3 * sum(all_of_them[:10])


def test_ranks_do_not_return_together():
    for tries in (1, 5, 30):
        last = set()
        for name in ranks(1000):
            pauses = Backoff(name)
            for _ in range(tries):
                pause = pauses.next()
            last.add(pause)
        assert len(last) > 990
        middle = min(FIRST * GROWTH ** (tries - 1), LONGEST)
        assert min(last) < middle * (1 - 0.9 * JITTER) < middle * (1 + 0.9 * JITTER) < max(last)


def test_equal_names_give_equal_pauses_and_a_reset_begins_again():
    pauses, same = Backoff(RANK), Backoff(RANK)
    before = [pauses.next() for _ in range(20)]
    assert before == [same.next() for _ in range(20)]
    pauses.reset()
    assert before == [pauses.next() for _ in range(20)]


class Recorder(Backoff):
    """Says what it was asked for, and has nobody wait."""

    said: ClassVar[list[str]] = []

    def next(self):
        self.said.append("next")
        return 0.0

    def reset(self):
        self.said.append("reset")


class Open:
    """An event that is never set, and notes for how long it was waited for."""

    def __init__(self):
        self.waits = []

    def is_set(self):
        return False

    def wait(self, seconds):
        self.waits.append(seconds)
        return False


def test_a_call_that_is_tried_again_waits_for_these_pauses():
    closed, lost = Open(), []

    def attempt(seconds):
        if len(lost) < 30:
            raise LostError("gone")
        return "there"

    assert rpc.retry(attempt, Backoff(RANK), closed, None, lost.append) == "there"
    pauses = Backoff(RANK)
    assert closed.waits == [pauses.next() for _ in range(30)]


def test_lost_acks_are_sent_again_after_these_pauses(serve, open_loader, monkeypatch):
    monkeypatch.setattr(acks, "Backoff", Recorder)
    monkeypatch.setattr(Recorder, "said", [])
    service = serve()
    service.ahead = 0
    service.faults = [("Ack", None, fake.Fault(grpc.StatusCode.UNAVAILABLE, "gone"))] * 3
    loader = open_loader(service)
    for _ in range(3 * service.microbatches):
        next(loader)
    loader.close()
    assert Recorder.said[:4] == ["next", "next", "next", "reset"]
    assert "next" not in Recorder.said[4:]
