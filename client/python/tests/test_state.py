"""The state is that of the last batch returned, and resuming goes on exactly after it."""

from __future__ import annotations

import base64
import copy
import json
import multiprocessing
import pickle

import fake
import numpy as np
import pytest
from conftest import check_batch, take
from processes import own_process, service_process, until

import millrace
from millrace.state import from_json

PREFETCH = pytest.mark.parametrize("prefetch", [0, 1, 3])


def position(state):
    return state["step"], state["microbatch"]


def check_goes_on(service, loader, batches, count):
    """Asserts that the ``count`` next microbatches are those after the first ``batches``."""
    for number in range(batches, batches + count):
        at = divmod(number, service.microbatches)
        check_batch(service, next(loader), *at)


@PREFETCH
def test_resume_at_every_microbatch(serve, open_loader, prefetch):
    service = serve(microbatches=3)
    loader = open_loader(service, prefetch=prefetch)
    states = [loader.state_dict()]
    for _ in range(7):
        next(loader)
        states.append(loader.state_dict())
    assert [position(s) for s in states] == [divmod(n, 3) for n in range(8)]
    for batches, state in enumerate(states):
        assert state["token"] == service.token(state["step"])
        resumed = open_loader(service, prefetch=prefetch)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state  # before the first batch, and no change by loading
        check_goes_on(service, resumed, batches, 5)


@PREFETCH
def test_resume_twice(serve, open_loader, prefetch):
    service = serve()
    state, batches = None, 0
    for part in (3, 2, 4):
        loader = open_loader(service, prefetch=prefetch)
        if state is not None:
            loader.load_state_dict(state)
        check_goes_on(service, loader, batches, part)
        batches += part
        state = loader.state_dict()
        assert position(state) == divmod(batches, 2)


@PREFETCH
def test_load_between_iterations_drops_what_was_prefetched(serve, open_loader, prefetch):
    service = serve()
    loader = open_loader(service, prefetch=prefetch)
    take(loader, 3)
    state = loader.state_dict()
    take(loader, 6)
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    assert (loader.step, loader.microbatch) == (None, None)
    check_goes_on(service, loader, 3, 6)
    loader.load_state_dict(state)  # the same state serves many times
    check_goes_on(service, loader, 3, 2)


def test_state_is_small_equal_on_all_ranks_and_portable(serve, open_loader):
    service = serve(mesh=(3, 1, 1, 1, 1))
    loaders = [open_loader(service, dp_rank=r, prefetch=r) for r in range(3)]
    for loader in loaders:
        take(loader, 5)
    states = [loader.state_dict() for loader in loaders]
    assert states[0] == states[1] == states[2]
    assert set(states[0]) == {"version", "step", "microbatch", "token"}
    assert len(pickle.dumps(states[0])) < 4096
    other = open_loader(service, dp_rank=2)
    other.load_state_dict(pickle.loads(pickle.dumps(states[0])))
    check_batch(service, next(other), 2, 1, (2, 0, 0, 0))


def test_token_is_asked_for_once_a_step(serve, open_loader):
    service = serve(microbatches=4)
    loader = open_loader(service)
    loader.state_dict()
    assert service.count("State") == 0  # the token of the start came with joining
    for _ in range(3):
        take(loader, 4)
        for _ in range(3):
            loader.state_dict()
        next(loader)  # the middle of a step has the token of its beginning
        loader.state_dict()
        take(loader, 3)
    assert service.count("State") == 3


def test_state_before_the_service_is_there(open_loader):
    service = fake.Service()
    state = {"version": 1, "step": 4, "microbatch": 1, "token": service.token(4)}
    loader = millrace.connect("127.0.0.1:9", dp_rank=0)
    loader.load_state_dict(state)
    assert loader.state_dict() == state  # needs no service
    state["step"] = 5
    assert loader.state_dict()["step"] == 4  # a copy


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version 2"),
        ({"step": -1}, "steps count up from 0"),
        ({"step": 1 << 63}, "state's step is 9223372036854775808: steps count up from 0"),
        ({"microbatch": -1}, "microbatches count up from 0"),
        ({"microbatch": None}, "microbatch is None: give a whole number"),
        ({"step": "3"}, "whole number"),
        ({"step": 1.0}, "whole number"),
        ({"token": b""}, "no token"),
        ({"token": "no base64"}, "no token"),
    ],
)
def test_states_that_cannot_be_right(serve, open_loader, change, words):
    loader = open_loader(serve())
    with pytest.raises(millrace.UserError, match=words):
        loader.load_state_dict({**loader.state_dict(), **change})
    with pytest.raises(millrace.UserError, match="dict"):
        loader.load_state_dict([])
    check_goes_on(serve(), loader, 0, 3)  # a refused state changes nothing


def test_an_empty_state_says_what_it_lacks(open_loader):
    loader = millrace.connect("127.0.0.1:9", dp_rank=0)
    with pytest.raises(millrace.UserError, match="this one holds nothing"):
        loader.load_state_dict({})
    with pytest.raises(millrace.UserError, match="this one holds 'model', 'data'"):
        loader.load_state_dict({"model": 1, "data": loader})


def test_a_state_that_came_back_as_arrays(serve, open_loader):
    service = serve()
    loader = open_loader(service)
    take(loader, 3)
    state = loader.state_dict()
    arrays = {key: np.asarray(state[key]) for key in ("step", "microbatch")}
    arrays["token"] = np.frombuffer(state["token"], np.uint8)
    loader.load_state_dict({**state, **arrays})
    assert loader.state_dict() == state and type(loader.state_dict()["step"]) is int
    check_goes_on(service, loader, 3, 3)


def test_a_state_out_of_json(serve, open_loader):
    """The file of --save-token goes wherever a state does, and so does a state's own JSON."""
    service = serve()
    loader = open_loader(service)
    take(loader, 4)
    state = loader.state_dict()
    text = base64.b64encode(state["token"]).decode()
    for given in ({"job": "fake", "step": 2, "token": text}, {**state, "token": text}):
        given = json.loads(json.dumps(given))
        for loaded in (given, from_json(given), from_json(json.dumps(given))):
            loader.load_state_dict(loaded)
            assert loader.state_dict() == state
            check_goes_on(service, loader, 4, 3)
        millrace.change(service.address, {"topology": {"dp": 1}}, from_token=given)
        assert service.requests("Change")[-1].token == state["token"]
    with pytest.raises(millrace.UserError, match="holds 'step', 'token'"):
        loader.load_state_dict({"step": 2, "token": text})


@PREFETCH
def test_a_microbatch_that_is_not_there_stays_an_error(serve, open_loader, prefetch):
    service = serve()
    loader = open_loader(service, prefetch=prefetch)
    for _ in range(2):
        loader.load_state_dict(
            {"version": 1, "step": 4, "microbatch": 9, "token": service.token(4)}
        )
        for _ in range(4):  # asked again, it neither goes on nor waits
            with pytest.raises(millrace.UserError, match="microbatch 9 of step 4, which has 2"):
                next(loader)
    loader.load_state_dict({"version": 1, "step": 4, "microbatch": 1, "token": service.token(4)})
    check_goes_on(service, loader, 9, 3)


@PREFETCH
@pytest.mark.parametrize("mesh", [(1, 1, 1, 1, 1), (2, 2, 1, 1, 1)])
def test_the_middle_of_a_step_is_for_the_same_mesh(serve, open_loader, prefetch, mesh):
    service = serve()  # of dp=2
    loader = open_loader(service)
    take(loader, 3)
    middle = loader.state_dict()
    next(loader)
    after = loader.state_dict()
    other = open_loader(serve(mesh=mesh), prefetch=prefetch, cp_rank=0)
    other.load_state_dict(middle)
    words = (
        r"the middle of step 1 \(1 of its microbatches were returned\) of a job with dp=2 cp=1, "
        rf"this one has dp={mesh[0]} cp={mesh[1]}: .*loader\.position\[1\] == 0"
    )
    for ask in (next, next, millrace.Loader.upcoming):
        with pytest.raises(millrace.UserError, match=words):
            ask(other)
    assert other.state_dict() == middle
    other.load_state_dict(after)
    check_goes_on(service, other, 4, 3)
    stages = open_loader(serve(mesh=(2, 1, 2, 2, 1)), prefetch=prefetch, pp_rank=0, tp_rank=0)
    for token in (middle["token"], fake.m.ResumeToken(job="fake", step=1).encode()):
        stages.load_state_dict({**middle, "token": token})
        check_goes_on(service, stages, 3, 3)


def test_a_closed_loader_is_pickled_with_its_position(serve, open_loader):
    service = serve()
    loader = open_loader(service)
    take(loader, 4)
    state = loader.state_dict()
    loader.close()
    fresh = pickle.loads(pickle.dumps(loader))
    assert fresh.state_dict() == state
    check_goes_on(service, fresh, 4, 3)
    fresh.close()  # a state further on than the last that was asked for
    with pytest.raises(millrace.UserError, match=r"call state_dict\(\) before close\(\)"):
        pickle.dumps(fresh)  # never a loader that begins again


@PREFETCH
def test_states_that_the_job_refuses(serve, open_loader, prefetch):
    service = serve()
    loader = open_loader(service, prefetch=prefetch)
    take(loader, 4)
    state = loader.state_dict()
    for change, words in [
        ({"step": 3}, "says step 3"),
        ({"microbatch": 2}, "microbatch 2 of step 2"),
        ({"token": fake.m.ResumeToken(job="other", step=2).encode()}, "of job other"),
    ]:
        loader.load_state_dict({**state, **change})
        with pytest.raises(millrace.UserError, match=words):
            next(loader)
    loader.load_state_dict(state)
    check_goes_on(service, loader, 4, 2)


@PREFETCH
def test_the_last_word_is_that_it_closes(serve, open_loader, prefetch):
    service = serve()
    loader = open_loader(service, prefetch=prefetch)
    take(loader, 4)
    assert not any(request.leaves for request in service.requests("Ack"))
    loader.close()
    said = service.requests("Ack")[-1]
    assert said.leaves and said.acked == 1  # the last step may be in use still


def test_aliases(serve, open_loader):
    service = serve()
    loader = open_loader(service)
    take(loader, 3)
    state = loader.state_dict()
    assert state == loader.save_state() == loader.get_state() == loader.save_state_rank()
    for load in (loader.set_state, loader.restore_state_rank):
        load(state)
        check_goes_on(service, loader, 3, 2)


@PREFETCH
def test_pickled_loaders_go_on_at_their_position(serve, open_loader, prefetch):
    service = serve()
    loader = open_loader(service, prefetch=prefetch)
    fresh = pickle.loads(pickle.dumps(loader))
    check_goes_on(service, loader, 0, 3)
    check_goes_on(service, fresh, 0, 1)
    twin = copy.deepcopy(loader)
    check_goes_on(service, loader, 3, 2)
    check_goes_on(service, twin, 3, 3)
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert pickle.loads(pickle.dumps(loader)).state_dict() == state
    for made in (fresh, twin):
        made.close()


def test_start_prefetch_hides_the_first_batch(serve, open_loader):
    service = serve()
    loader = open_loader(service, prefetch=2)
    loader.load_state_dict({"version": 1, "step": 5, "microbatch": 1, "token": service.token(5)})
    assert not service.asked
    loader.start_prefetch()
    until(lambda: service.count("Batch") >= 2)
    check_goes_on(service, loader, 11, 3)


def in_fork(work, *arguments):
    """Runs work in a forked process; raises what it raised."""
    queue = multiprocessing.get_context("fork").SimpleQueue()

    def run():
        try:
            work(*arguments)
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join(30)
    if (error := queue.get()) is not None:
        raise error


@own_process
def test_a_forked_process_goes_on_with_connections_of_its_own():
    def work(loader, first):
        for number in range(first, first + 4):
            check_batch(fake.Service(), next(loader), *divmod(number, 2))
        loader.close()

    state = {"version": 1, "step": 1, "microbatch": 1, "token": fake.Service().token(1)}
    with service_process() as address:
        loader = millrace.connect(address, dp_rank=0, timeout=20)
        in_fork(work, loader, 0)
        loader.load_state_dict(state)
        in_fork(work, loader, 3)
        work(loader, 3)  # and so does the parent


@own_process
def test_a_fork_after_the_first_use_is_refused():
    """gRPC would hang there, or crash."""
    with service_process() as address:
        used = millrace.connect(address, dp_rank=0, timeout=20)
        check_batch(fake.Service(), next(used), 0, 0)
        state = used.state_dict()
        fresh = millrace.connect(address, dp_rank=0, timeout=20)
        loaded = millrace.connect(address, dp_rank=0, timeout=20)
        loaded.load_state_dict(state)

        def reload(loader):
            loader.load_state_dict(state)
            next(loader)

        for loader in (used, fresh, loaded):
            for work in (list, reload):
                with pytest.raises(millrace.UserError, match="spawn"):
                    in_fork(work, loader)
            in_fork(millrace.Loader.close, loader)
        check_batch(fake.Service(), next(used), 0, 1)  # the parent's are unharmed
        check_batch(fake.Service(), next(used), 1, 0)
        assert used.stats.retries == 0
        used.close()
