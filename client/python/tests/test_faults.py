"""What is lost is asked for again, what is wrong is said, and nothing hangs."""

from __future__ import annotations

import logging
import math
import re
import sys
import threading
import time

import fake
import grpc
import pytest
from conftest import check_batch, take
from processes import until

import millrace
from millrace import acks, attention, background, messages, rpc, sources
from millrace import loader as loaders

PREFETCH = pytest.mark.parametrize("prefetch", [0, 2])
LOST = [
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
]


def check_steps(service, loader, steps):
    for step in steps:
        for microbatch in range(service.microbatches):
            check_batch(service, next(loader), step, microbatch)


@PREFETCH
@pytest.mark.parametrize("method", ["Join", "Batch", "State"])
@pytest.mark.parametrize("code", LOST)
def test_lost_requests_are_made_again(serve, open_loader, prefetch, method, code):
    service = serve()
    step = None if method == "Join" else 2
    service.faults = [(method, step, fake.Fault(code, "gone")) for _ in range(3)]
    loader = open_loader(service, prefetch=prefetch)
    check_steps(service, loader, range(2))
    assert loader.state_dict()["token"] == service.token(2)
    check_steps(service, loader, range(2, 4))
    assert not service.faults and loader.stats.retries == 3


@PREFETCH
@pytest.mark.parametrize("frames", [0, 1, 3])
def test_a_broken_stream_is_asked_for_again(serve, open_loader, prefetch, frames):
    service = serve()
    service.broken = {1: frames, 3: frames}
    loader = open_loader(service, prefetch=prefetch)
    check_steps(service, loader, range(5))
    assert [r.step for r in service.requests("Batch")].count(1) == 2
    assert loader.stats.retries == 2 and service.count("Join") == 1


class CtrlC:
    """Raises KeyboardInterrupt in this thread, in next(), where the given number of calls was made.

    A signal falls where a function begins or a call has returned, such as the one that makes a
    thread, before it is known whether that runs.
    """

    FILES = (loaders.__file__, sources.__file__, background.__file__)
    START = threading.Thread.start.__code__

    def __init__(self, calls):
        self.left = calls

    def __enter__(self):
        sys.setprofile(self.profile)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)
        return error[0] is KeyboardInterrupt

    def profile(self, frame, event, called):
        if frame.f_code is self.START:
            falls = event == "c_return" and "start_" in called.__name__
        else:
            falls = event in ("call", "c_return") and frame.f_code.co_filename in self.FILES
        if falls:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


# The last is that of a trainer that computes for long between two steps.
@pytest.mark.parametrize("prefetch, trains", [(0, 0), (2, math.inf), (2, 0)])
@pytest.mark.parametrize("microbatches", [1, 2])
def test_an_interrupt_loses_no_step(
    serve, open_loader, monkeypatch, prefetch, trains, microbatches
):
    """Wherever in next() it falls. It may take the batch along that was about to be returned."""
    monkeypatch.setattr(sources, "TRAINS", trains)
    service = serve(microbatches=microbatches)
    loader = open_loader(service, prefetch=prefetch)
    next(loader)
    due = calls = 1
    ended = 0  # times in a row that next() ended before the interrupt
    while ended < 2 * microbatches:
        if prefetch:
            until(lambda: loader._source._ready)
        with CtrlC(calls) as interrupt:
            next(loader)
            due += 1
        batch = next(loader)
        number = loader.step * microbatches + loader.microbatch
        assert number - due in (0, 1), f"after an interrupt at call {calls}"
        check_batch(service, batch, *divmod(number, microbatches))
        due, calls = number + 1, calls + 1
        if (due - calls) % microbatches:  # of a step the first is interrupted, and then the second
            check_batch(service, next(loader), *divmod(due, microbatches))
            due += 1
        ended = ended + 1 if interrupt.left > 0 else 0
    assert calls > 10


def test_an_interrupt_starts_no_second_thread(serve, open_loader):
    """Wherever in the first next() it falls: two that fetch would take each other's steps."""

    def running():
        names = [t.name for t in threading.enumerate() if t.is_alive()]
        return sorted(name for name in names if name.startswith("millrace-"))

    service = serve(microbatches=1)
    calls = left = 0
    while left <= 0:
        calls += 1
        loader = open_loader(service, prefetch=2)
        with CtrlC(calls) as interrupt:
            next(loader)
        left = interrupt.left
        next(loader)
        assert loader.step in (0, 1), f"after an interrupt at call {calls}"
        check_steps(service, loader, range(loader.step + 1, 5))
        until(lambda: running() == ["millrace-acks", "millrace-prefetch", "millrace-tell"])
        loader.close()
        until(lambda: not running())
    assert calls > 10


@PREFETCH
def test_a_new_generation_is_joined_with_the_last_position(serve, open_loader, prefetch):
    service = serve()
    loader = open_loader(service, prefetch=prefetch)
    check_steps(service, loader, range(3))
    service.generation = 2
    check_steps(service, loader, range(3, 9))
    first, second = service.requests("Join")
    assert first.token == b"" and second.at.generation == 1 and 2 <= second.at.step <= 9
    assert loader.stats.retries == 1  # joined at once, not after another try
    last = service.requests("Batch")[-1]
    assert (last.generation, last.join) == (2, 2)


@PREFETCH
def test_a_service_that_forgot_the_position_is_never_moved_back(serve, open_loader, prefetch):
    """An older token would do to go on, but it would move all other ranks, too."""
    service = serve()
    service.protocol = 2  # it takes no positions
    loader = open_loader(service, prefetch=prefetch)
    check_steps(service, loader, range(2))
    loader.state_dict()
    check_steps(service, loader, range(2, 4))
    gone = fake.Fault(grpc.StatusCode.FAILED_PRECONDITION, "that step is not in the log")
    service.faults = [("State", None, gone)] * 9
    service.generation = 2
    with pytest.raises(millrace.UserError, match="not in the log"):
        take(loader, 20)
    assert service.count("Join") == 1


@PREFETCH
def test_the_service_restarts_on_the_same_port(serve, open_loader, prefetch):
    service = serve()
    loader = open_loader(service, prefetch=prefetch)
    check_steps(service, loader, range(3))
    service.stop()
    timer = threading.Timer(0.5, lambda: service.start(service.port))
    timer.start()
    check_steps(service, loader, range(3, 12))
    timer.join()
    assert loader.stats.retries > 0


@PREFETCH
def test_another_job_after_a_restart_is_refused(serve, open_loader, prefetch, monkeypatch):
    service = serve()
    loader = open_loader(service, prefetch=prefetch)
    check_steps(service, loader, range(2))
    monkeypatch.setattr(fake, "IDENTITY", b"other" * 4)
    service.generation = 2
    with pytest.raises(millrace.UserError, match="another job"):
        take(loader, 20)


@PREFETCH
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, millrace.UserError),
        (grpc.StatusCode.FAILED_PRECONDITION, millrace.UserError),
        (grpc.StatusCode.NOT_FOUND, millrace.UserError),
        (grpc.StatusCode.PERMISSION_DENIED, millrace.UserError),
        (grpc.StatusCode.INTERNAL, millrace.BugError),
        (grpc.StatusCode.UNKNOWN, millrace.BugError),
    ],
)
def test_other_errors_are_raised_after_the_steps_before_them(
    serve, open_loader, prefetch, code, kind
):
    service = serve()
    service.faults = [("Batch", 2, fake.Fault(code, "file x, row 7: bad"))]
    loader = open_loader(service, prefetch=prefetch)
    check_steps(service, loader, range(2))
    with pytest.raises(kind) as caught:
        next(loader)
    for words in ("dp=0 cp=0 pp=0 tp=0", "step 2", service.address, "file x, row 7: bad"):
        assert words in str(caught.value)
    assert caught.value.code == code.name
    assert loader.state_dict()["step"] == 2
    loader.load_state_dict(loader.state_dict())
    check_steps(service, loader, range(2, 4))


@PREFETCH
@pytest.mark.parametrize("code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED])
def test_a_service_of_others_at_the_address_is_waited_out(serve, open_loader, prefetch, code):
    service = serve()
    other = fake.Fault(code, "not for you")
    service.faults = [("Batch", 2, other)] * 3
    loader = open_loader(service, prefetch=prefetch, timeout=60)
    check_steps(service, loader, range(2))
    service.faults += [("Join", None, other)] * 2
    check_steps(service, loader, range(2, 4))
    assert loader.stats.retries >= 3 and not service.faults

    service.faults = [("Join", None, other)]
    with pytest.raises(millrace.UserError):  # it has not joined
        next(open_loader(service, prefetch=prefetch, timeout=60))


@PREFETCH
def test_timeout_says_who_waits_for_what(serve, open_loader, prefetch):
    service = serve()
    loader = open_loader(service, prefetch=prefetch, timeout=2, dp_rank=1)
    take(loader, 2)
    take(loader, 2 * prefetch)
    service.gate.clear()
    began = time.monotonic()
    with pytest.raises(millrace.LostError) as caught:
        take(loader, 20)
    assert 1.5 < time.monotonic() - began < 6
    for words in ("dp=1", "step ", service.address):
        assert words in str(caught.value)
    state = loader.state_dict()
    service.gate.set()
    loader.load_state_dict(state)  # waiting longer, or again, loses nothing
    check_batch(service, next(loader), state["step"], 0, (1, 0, 0, 0))


@PREFETCH
def test_next_may_be_repeated_after_a_timeout(serve, open_loader, prefetch):
    service = serve()
    loader = open_loader(service, prefetch=prefetch, timeout=2)
    service.gate.clear()
    with pytest.raises(millrace.LostError):
        next(loader)
    service.gate.set()
    check_steps(service, loader, range(3))


@PREFETCH
def test_nobody_is_there(prefetch, caplog):
    caplog.set_level(logging.WARNING)
    with (
        millrace.connect("127.0.0.1:9", dp_rank=3, prefetch=prefetch, timeout=3) as loader,
        pytest.raises(millrace.LostError, match=r"(?s)dp=3.*127.0.0.1:9.*UNAVAILABLE"),
    ):
        next(loader)
    assert "trying again" in caplog.text  # a wait is never silent


@PREFETCH
def test_waiting_is_logged(serve, open_loader, caplog, monkeypatch, prefetch):
    monkeypatch.setattr("millrace.session.WAIT_LOG_AFTER", 0.1)
    monkeypatch.setattr("millrace.session.WAIT_LOG_EVERY", 0.1)
    service = serve()
    service.gate.clear()
    loader = open_loader(service, prefetch=prefetch, timeout=2)
    with pytest.raises(millrace.LostError):
        next(loader)
    waits = r"has waited [0-2] s for (?:the first step|step 0) from the constructor at"
    said = re.findall(waits, caplog.text)
    assert 2 <= len(said) <= 20


@PREFETCH
def test_an_attempt_has_its_own_deadline(serve, open_loader, prefetch, monkeypatch):
    monkeypatch.setattr(rpc, "FIRST_PATIENCE", 0.2)
    service = serve()
    loader = open_loader(service, prefetch=prefetch)
    take(loader, 2)
    service.gate.clear()

    def let():
        until(lambda: loader.stats.retries >= 1)
        service.gate.set()

    threading.Thread(target=let).start()
    check_steps(service, loader, range(1, 5))


def seen(service):
    """Returns for each Batch request the steps it asked for and acknowledged."""
    return [(r.step, r.acked) for r in service.requests("Batch")]


def told(service):
    """Returns the last step that any request acknowledged."""
    return max(r.acked for r in service.requests("Batch") + service.requests("Ack"))


def test_acks_without_prefetch(serve, open_loader):
    service = serve(microbatches=2)
    loader = open_loader(service, prefetch=0)
    take(loader, 6)
    assert seen(service) == [(0, 0), (1, 1), (2, 2)]
    next(loader)
    assert seen(service)[-1] == (3, 3)


@pytest.mark.parametrize("prefetch", [1, 2, 4])
def test_prefetch_is_bounded_and_acks_follow_the_trainer(serve, open_loader, prefetch):
    service = serve()
    loader = open_loader(service, prefetch=prefetch)
    for step in range(6):
        take(loader, 2)
        room = step + 1 + prefetch
        until(lambda room=room: len(seen(service)) >= room)
        time.sleep(0.02)  # would show a request too many
        asked = seen(service)
        assert [s for s, _ in asked] == list(range(room))
        # It was said when the trainer asked for this step: by the last request or, if that left
        # before the thread that tells was run, by a call after it.
        until(lambda step=step: told(service) >= step)
        assert told(service) == step


def test_a_resumed_loader_acknowledges_its_position(serve, open_loader):
    service = serve()
    loader = open_loader(service, prefetch=0)
    loader.load_state_dict({"version": 1, "step": 7, "microbatch": 1, "token": service.token(7)})
    take(loader, 2)
    assert seen(service) == [(7, 7), (8, 8)]


@pytest.mark.parametrize(("prefetch", "ahead"), [(1, 0), (4, 1), (8, 2), (1000, 0)])
def test_a_request_that_waits_is_made_once(serve, open_loader, prefetch, ahead):
    """A service that plans fewer steps ahead than we prefetch waits for our acks."""
    service = serve()
    service.ahead = ahead
    loader = open_loader(service, prefetch=prefetch)
    check_steps(service, loader, range(12))
    assert loader.stats.retries == 0
    asked = [step for step, _ in seen(service)]
    assert asked == list(range(len(asked))) and service.count("Ack") <= 12


@pytest.mark.parametrize("code", LOST)
def test_lost_acks_are_sent_again(serve, open_loader, code):
    service = serve()
    service.ahead = 0
    service.faults = [("Ack", None, fake.Fault(code, "gone")) for _ in range(3)]
    loader = open_loader(service)
    check_steps(service, loader, range(3))
    assert not service.faults and loader.stats.retries == 0


def test_the_last_ack_arrives_before_the_end(serve, open_loader):
    service = serve(steps=4)
    service.faults = [("Ack", None, fake.Fault(grpc.StatusCode.UNAVAILABLE, "gone"))] * 2
    loader = open_loader(service, prefetch=8)
    assert len(list(loader)) == 8
    assert service.acked == 4


def test_close_acknowledges_no_step_in_use(serve, open_loader):
    service = serve()
    loader = open_loader(service, prefetch=3)
    check_steps(service, loader, range(4))
    loader.close()
    assert service.acked == 3  # the trainer may still be at it


def test_close_acknowledges_what_no_request_took_along(serve, open_loader):
    """Without read-ahead, too: the trainer asked for more, and so was done with a step."""
    service = serve()
    loader = open_loader(service, prefetch=0, timeout=4)
    check_steps(service, loader, range(1))
    service.faults = [("Batch", None, fake.Fault(grpc.StatusCode.UNAVAILABLE, "gone"))] * 1000
    with pytest.raises(millrace.LostError):
        next(loader)
    assert service.acked == 0
    loader.close()
    assert service.acked == 1


def test_a_refused_ack_is_not_repeated(serve, open_loader):
    service = serve()
    refused = fake.Fault(grpc.StatusCode.FAILED_PRECONDITION, "another client joined")
    service.faults = [("Ack", None, refused)]
    loader = open_loader(service)
    check_steps(service, loader, range(4))
    loader.close()
    said = service.requests("Ack")
    positions = [request.acked for request in said if not request.leaves]
    assert positions == sorted(set(positions)) and service.acked == 3
    assert said[-1].leaves and sum(request.leaves for request in said) == 1


def test_a_rank_that_is_left_behind_hears_so_at_once(serve, open_loader, monkeypatch):
    monkeypatch.setattr(acks, "INSIST", 0.1)
    service = serve()
    moved = fake.Fault(grpc.StatusCode.OUT_OF_RANGE, "the job was moved to step 0")
    service.faults = [("Ack", None, moved)] * 100
    loader = open_loader(service, prefetch=8)
    loader.start_prefetch()
    until(lambda: len(loader._source._ready) == 8)
    service.gate.clear()  # no request takes a position along
    with pytest.raises(millrace.MovedError, match="moved to step 0"):
        for step in range(8):  # all of them are there
            check_steps(service, loader, [step])
            time.sleep(0.05 * 2**step)  # the longer ones only on a busy machine
    before = service.count("Ack")
    until(lambda: service.count("Ack") >= before + 2)  # others hear who they wait for
    loader.close()


@pytest.mark.parametrize(("theirs", "side"), [(0, "service"), (1, "service"), (4, "client")])
def test_another_protocol_is_refused(serve, open_loader, theirs, side):
    service = serve()
    service.protocol = theirs
    with pytest.raises(millrace.UserError, match=f"upgrade the {side}"):
        next(open_loader(service))
    request = service.requests("Join")[0]
    assert (request.protocol, request.newest) == (messages.OLDEST, messages.PROTOCOL)


@pytest.mark.parametrize("theirs", range(messages.OLDEST, messages.PROTOCOL + 1))
def test_a_version_that_is_spoken_is_taken(serve, open_loader, theirs):
    service = serve()
    service.protocol = theirs
    assert next(open_loader(service))


@pytest.mark.parametrize("busy", ["blocked in a call", "queue full", "retrying", "joining"])
def test_close_ends_the_thread(serve, open_loader, busy):
    service = serve()
    loader = open_loader(service, prefetch=2)
    if busy == "blocked in a call":
        service.gate.clear()
    if busy in ("joining", "retrying"):
        if busy == "retrying":
            take(loader, 1)
        service.stop()
    loader.start_prefetch()
    if busy == "queue full":
        take(loader, 1)
    time.sleep(0.2)
    began = time.monotonic()
    loader.close()
    loader.close()
    assert time.monotonic() - began < 10  # half of what the rank has for a call
    until(lambda: not any(t.name.startswith("millrace-") for t in threading.enumerate()))
    with pytest.raises(millrace.Error, match="closed"):
        take(loader, 8)


def test_close_wakes_a_waiting_trainer(serve, open_loader):
    service = serve()
    service.gate.clear()
    for prefetch in (0, 2):
        loader = open_loader(service, prefetch=prefetch)
        threading.Timer(0.2, loader.close).start()
        with pytest.raises(millrace.Error, match="closed"):
            next(loader)


def test_a_closed_loader_opens_again_with_a_state(serve, open_loader):
    service = serve()
    loader = open_loader(service)
    take(loader, 2)
    state = loader.state_dict()
    loader.close()
    loader.load_state_dict(state)
    check_steps(service, loader, range(1, 3))


def test_a_dropped_loader_ends_its_thread(serve):
    service = serve()
    loader = millrace.connect(service.address, dp_rank=0)
    next(loader)
    del loader
    deadline = time.monotonic() + 5
    while any(t.name.startswith("millrace-") for t in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_service_that_says_that_it_waits_is_waited_for(serve, open_loader, monkeypatch):
    monkeypatch.setattr(attention, "EVERY", 0.1)
    service = serve()
    service.waits, service.says, service.pause = True, 12, 0.1
    loader = open_loader(service, prefetch=0)
    check_steps(service, loader, range(3))
    assert loader.stats.retries == 0
    assert all(request.hears for request in service.requests("Batch"))


@PREFETCH
def test_a_service_that_says_nothing_is_asked_again(serve, open_loader, monkeypatch, prefetch):
    monkeypatch.setattr(attention, "EVERY", 0.3)
    service = serve()
    service.waits, service.mute = True, {2: 6.0}
    loader = open_loader(service, prefetch=prefetch)
    began = time.monotonic()
    check_steps(service, loader, range(4))
    assert time.monotonic() - began < 5
    assert loader.stats.retries == 1 and service.count("Join") == 2


def test_nobody_expects_it_of_a_service_that_does_not(serve, open_loader, monkeypatch):
    monkeypatch.setattr(attention, "EVERY", 0.05)
    service = serve()
    service.mute = {1: 1.0}
    loader = open_loader(service, prefetch=0)
    check_steps(service, loader, range(3))
    assert loader.stats.retries == 0
