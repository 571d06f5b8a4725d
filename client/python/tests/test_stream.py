"""One stream for all steps, against a service that knows streams, and faults on it."""

from __future__ import annotations

import time

import grpc
import pytest
from conftest import check_batch, take
from fake import Fault
from processes import until

from millrace import LostError, MovedError, UserError, attention

C = grpc.StatusCode

both = pytest.mark.parametrize("prefetch", [0, 2])


@pytest.fixture
def streams(serve):
    def start(**options):
        service = serve(**options)
        service.streams = True
        return service

    return start


@both
@pytest.mark.parametrize("images", [False, True])
def test_batches_are_those_of_calls(streams, open_loader, prefetch, images):
    service = streams(steps=9, format="hf")
    service.images, service.joined, service.lengths = images, [(3, "new")], {4: 96}
    by = [open_loader(service, prefetch=prefetch, way=way) for way in (None, "calls")]
    for number in range(18):
        stream, calls = (next(loader) for loader in by)
        check_batch(service, stream, number // 2, number % 2)
        assert {k: type(v) for k, v in stream.items()} == {k: type(v) for k, v in calls.items()}
        for known in ("lineage", "step", "rows", "sequence_length", "sources"):
            assert getattr(by[0], known) == getattr(by[1], known)
        assert {k: v.tolist() for k, v in by[0].images.items()} == {
            k: v.tolist() for k, v in by[1].images.items()
        }
    for loader in by:
        with pytest.raises(StopIteration):
            next(loader)
    assert service.count("Batch") == 10


@both
def test_no_step_is_asked_for_by_a_call(streams, open_loader, prefetch):
    service = streams(steps=20)
    loader = open_loader(service, prefetch=prefetch)
    assert len(list(loader)) == 40
    loader.close()
    assert service.count("Batch") == 0 and service.count("Join") == 1
    assert service.acked == 20 or prefetch == 0


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_no_more_comes_than_there_is_room_for(streams, open_loader, prefetch):
    service = streams(microbatches=1)
    loader = open_loader(service, prefetch=prefetch)
    for step in range(5):
        next(loader)
        there = (step, step + 1 + prefetch)
        until(lambda there=there: (service.acked, service.count("Deliver")) == there)
        time.sleep(0.05)  # would show one too many
        assert (service.acked, service.count("Deliver")) == there


@both
def test_a_service_that_knows_none_is_asked(serve, open_loader, prefetch):
    service = serve(steps=4)
    assert len(list(open_loader(service, prefetch=prefetch))) == 8
    assert service.count("Batch") == 5
    with pytest.raises(UserError, match="no streams here"):
        next(open_loader(service, prefetch=prefetch, way="stream"))


@both
@pytest.mark.parametrize("code", [C.UNAVAILABLE, C.ABORTED, C.DEADLINE_EXCEEDED])
def test_a_stream_that_breaks_is_opened_again(streams, open_loader, prefetch, code):
    service = streams()
    service.faults = [("Deliver", step, Fault(code, "gone")) for step in (0, 2, 2, 3)]
    service.broken = {4: 1, 5: 0}
    loader = open_loader(service, prefetch=prefetch)
    for number, batch in enumerate(take(loader, 14)):
        check_batch(service, batch, number // 2, number % 2)
    assert loader.stats.retries >= 6


@both
def test_a_new_generation_is_joined(streams, open_loader, prefetch):
    service = streams()
    loader = open_loader(service, prefetch=prefetch)
    take(loader, 6)
    service.generation = 2
    take(loader, 12)
    assert service.count("Join") == 2


def test_a_rank_that_is_left_behind_hears_so_at_once(streams, open_loader):
    service = streams()
    loader = open_loader(service, prefetch=4)
    take(loader, 2)
    service.faults = [("Deliver", None, Fault(C.OUT_OF_RANGE, "the job was moved to step 0"))]
    with pytest.raises(MovedError, match="moved to step 0"):
        for pause in (0.05, 0.1, 0.2, 0.5, 2, 10):  # the longer ones only on a busy machine
            next(loader)
            time.sleep(pause)
    assert loader.step < 4 + 4


@both
def test_waits_are_heard_and_bounded(streams, open_loader, prefetch):
    service = streams()
    service.waits, service.says, service.pause = True, 1, 0.01
    loader = open_loader(service, prefetch=prefetch, timeout=2)
    take(loader, 4)
    service.says, service.pause = 1000, 0.2
    with pytest.raises(LostError, match="why"):
        take(loader, 20)


@both
def test_silence_ends_the_stream(streams, open_loader, prefetch, monkeypatch):
    monkeypatch.setattr(attention, "EVERY", 0.02)
    service = streams()
    service.waits, service.mute = True, {3: 1.0}
    loader = open_loader(service, prefetch=prefetch)
    take(loader, 16)
    assert loader.stats.retries >= 1


@both
def test_a_service_of_many_ranks_is_waited_for(streams, open_loader, prefetch, monkeypatch):
    monkeypatch.setattr(attention, "EVERY", 0.05)
    service = streams()
    service.waits, service.looks, service.mute = True, 60, {3: 0.5}
    loader = open_loader(service, prefetch=prefetch)
    take(loader, 16)
    assert loader.stats.retries == 0


@both
def test_nothing_is_owed_while_the_trainer_has_no_room(streams, open_loader, prefetch, monkeypatch):
    monkeypatch.setattr(attention, "EVERY", 0.3)
    service = streams()
    service.waits = True
    loader = open_loader(service, prefetch=prefetch)
    take(loader, 4)
    time.sleep(1.2)
    take(loader, 4)
    assert loader.stats.retries == 0


def test_ways_are_checked(streams, open_loader):
    with pytest.raises(UserError, match="way is 'post'"):
        open_loader(streams(), way="post")
