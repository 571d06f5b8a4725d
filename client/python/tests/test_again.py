"""Ranks that lose the service and go on: by their position, and at another planner."""

from __future__ import annotations

import threading
import time

import grpc
import pytest
from fake import Fault

import millrace
from millrace import messages, session
from millrace.errors import LostError, with_code
from millrace.waiting import Progress, Wait

LOST, VOID = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ALREADY_EXISTS
GONE = grpc.StatusCode.ABORTED


def take(loader, service, steps):
    """Takes whole steps and checks whose they are."""
    for _ in range(steps):
        for number in range(service.microbatches):
            got = next(loader)["tokens"]
            assert (got == service.arrays(loader.step, (0, 0, 0, 0), number)["tokens"]).all()


def test_a_rank_joins_again_by_its_position(serve, open_loader):
    service = serve()
    service.epoch = 5
    loader = open_loader(service, prefetch=0)
    take(loader, service, 3)
    service.generation += 1  # the constructor does not know the one before any more
    take(loader, service, 3)
    first, again = service.requests("Join")
    assert (first.epoch, first.at.generation) == (0, 0)
    assert (again.epoch, again.at.generation, again.at.step, again.token) == (5, 1, 3, b"")
    assert service.count("State") == 0


def test_a_rank_that_goes_on_while_it_joins_again_asks_once_more(serve, open_loader):
    service = serve()
    service.epoch = 5
    loader = open_loader(service, prefetch=2)
    join, late = service.join, threading.Event()

    def slow(request):
        """Answers when the trainer is done with one more step, and knows the one before no more."""
        if request.at.generation and not late.is_set():
            late.set()
            until = time.monotonic() + 10
            while service.acked <= request.at.step and time.monotonic() < until:
                time.sleep(0.01)
            service.asked.append(("Join", request))
            raise Fault(grpc.StatusCode.FAILED_PRECONDITION, "all ranks are done with that step")
        return join(request)

    service.join = slow
    service.faults.append(("Batch", 2, Fault(GONE, "another constructor serves it")))
    take(loader, service, 1)
    assert late.wait(10)
    take(loader, service, 4)
    refused, granted = service.requests("Join")[1:]
    assert refused.at.step < granted.at.step


def test_a_rank_says_the_generation_that_it_was_taken_along_into(serve, open_loader):
    service = serve()
    service.moves = {1: 4, 3: 6}
    loader = open_loader(service, prefetch=0)
    for steps, generation in [(1, 1), (1, 4), (2, 6)]:
        take(loader, service, steps)
        service.faults.append(("Batch", None, Fault(GONE, "another constructor serves it")))
        service.moves = {k: v for k, v in service.moves.items() if v > generation}
        service.generation = generation
        take(loader, service, 1)
        assert service.requests("Join")[-1].at == messages.Position(generation, loader.step)


def test_a_rank_before_the_steps_of_another_generation_says_the_one_that_it_joined(
    serve, open_loader
):
    service = serve()
    service.moves = {4: 2}
    loader = open_loader(service, prefetch=8)
    take(loader, service, 2)
    until = time.monotonic() + 10
    while max(request.step for request in service.requests("Batch")) < 6:
        assert time.monotonic() < until
        time.sleep(0.01)
    service.generation = 2  # step 6 or a later one meets it
    take(loader, service, 12)
    at = service.requests("Join")[-1].at
    assert at.generation == (2 if at.step >= 4 else 1)


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_service_that_knows_no_position_is_asked_for_the_token(serve, open_loader, protocol):
    service = serve()
    service.protocol = protocol
    loader = open_loader(service, prefetch=0)
    take(loader, service, 3)
    service.generation += 1
    if protocol == 3:
        unknown = Fault(grpc.StatusCode.FAILED_PRECONDITION, "this service does not know that")
        service.faults.append(("Join", None, unknown))
    take(loader, service, 3)
    again = service.requests("Join")[-1]
    assert (again.at.generation, again.token) == (0, service.token(3))


def test_a_planner_that_is_gone_disturbs_nobody(serve, open_loader):
    service = serve()
    service.epoch = 5
    loader = open_loader(service, prefetch=0)
    take(loader, service, 2)
    service.faults += [("Batch", None, Fault(LOST, "a reset")) for _ in range(3)]
    service.faults += [("Join", None, Fault(LOST, "no planner")) for _ in range(100)]
    take(loader, service, 2)
    assert service.count("Join") > 1 and not [f for f in service.faults if f[0] == "Batch"]


def test_a_join_whose_answer_was_lost_ends_nobody(serve, open_loader):
    service = serve()
    service.epoch = 5
    loader = open_loader(service, prefetch=0)
    take(loader, service, 2)
    service.faults += [("Batch", None, Fault(LOST, "a reset")) for _ in range(2)]
    service.faults += [("Join", None, Fault(LOST, "the answer is lost"))]
    service.faults += [("Batch", None, Fault(VOID, "another client joined since"))]
    take(loader, service, 2)
    assert not service.faults


def test_another_client_ends_this_one(serve, open_loader):
    service = serve()
    loader = open_loader(service, prefetch=0)
    take(loader, service, 2)
    service.faults += [("Batch", None, Fault(VOID, "another client joined since"))]
    with pytest.raises(millrace.UserError, match="another client joined"):
        take(loader, service, 1)


def test_a_join_that_was_lost_long_ago_takes_no_place(serve, open_loader, monkeypatch):
    service = serve()
    service.epoch = 5
    loader = open_loader(service, prefetch=0)
    take(loader, service, 2)
    service.faults += [("Batch", None, Fault(LOST, "a reset")) for _ in range(2)]
    service.faults += [("Join", None, Fault(LOST, "the planner is gone"))]
    take(loader, service, 2)
    assert not service.faults
    monkeypatch.setattr(session, "DOUBT_TIME", -1.0)
    take(loader, service, 1)
    service.faults += [("Batch", None, Fault(VOID, "another client joined since"))]
    with pytest.raises(millrace.UserError, match="another client joined"):
        take(loader, service, 1)


def test_planners_are_tried_in_turn(serve):
    service = serve()
    with millrace.connect(f"127.0.0.1:1, {service.address}", dp_rank=0, prefetch=0) as loader:
        take(loader, service, 2)
        assert loader.state_dict()["step"] == 2


def test_a_planner_whose_epoch_is_over_is_refused(serve, open_loader):
    service = serve()
    service.epoch = 5
    loader = open_loader(service, prefetch=0, timeout=4)
    take(loader, service, 2)
    service.generation, service.epoch = 2, 4
    with pytest.raises(millrace.LostError, match="another one took over with epoch 5"):
        take(loader, service, 1)


def test_a_planner_without_an_epoch_is_refused(serve, open_loader):
    service = serve()
    service.epoch = 5
    loader = open_loader(service, prefetch=0, timeout=4)
    take(loader, service, 2)
    service.epoch = 0
    with pytest.raises(millrace.LostError, match="keeps no log, has not opened it, or failed"):
        loader.state_dict()


def test_answers_of_a_planner_whose_epoch_is_over_are_refused(serve, open_loader):
    """The next planner that answers hears how often that was, once."""
    service = serve()
    service.epoch = 5
    loader = open_loader(
        service, prefetch=0, timeout=4
    )  # on a busy machine, for two questions at least
    take(loader, service, 2)
    service.epoch = 4
    with pytest.raises(millrace.LostError, match="another one took over with epoch 5"):
        loader.state_dict()
    refused = service.count("State")
    service.epoch = 5
    assert loader.state_dict()["step"] == 2
    last = service.requests("State")[-1]
    # The last of them may have been given up before its answer came.
    assert last.epoch == 5 and 1 <= refused - 1 <= last.stale_refused <= refused
    take(loader, service, 1)
    loader.state_dict()
    assert service.requests("State")[-1].stale_refused == 0


@pytest.mark.parametrize("address", ["a:1,", "a:1,b", ",", "a:1;b:2"])
def test_what_is_no_list_of_addresses(address):
    with pytest.raises(millrace.UserError, match="give host:port"):
        millrace.connect(address, dp_rank=0)


def test_the_end_of_time_hides_no_cause():
    progress, wait = Progress(), Wait("rank", "step 2", time.monotonic(), time.monotonic(), 1.0)
    progress.lost("the planner", LostError("its epoch is over"))
    over = with_code(LostError("no answer"), "DEADLINE_EXCEEDED")
    progress.lost("the planner", over)
    progress.lost("the constructor", over)
    error = str(progress.over(wait, over))
    assert "the planner is lost: its epoch is over" in error
    assert "the constructor is lost: no answer" in error
