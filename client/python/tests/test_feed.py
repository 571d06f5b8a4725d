"""What trainers that fetch ahead leave behind: nothing."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import signal
import types
from unittest import mock

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

import fake  # noqa: E402
from processes import own_process, service_process  # noqa: E402
from test_torch import (  # noqa: E402
    check,
    check_state,
    check_through_an_error,
    data_loader,
    failing,
)

import millrace  # noqa: E402
import millrace.torch  # noqa: E402
import millrace.transformers  # noqa: E402
from millrace.feed import Feed, feed_of  # noqa: E402
from millrace.state import beginning, from_json, is_beginning, make, to_json  # noqa: E402


def feed(service, **options):
    return Feed(millrace.torch.Dataset(service.address, dp_rank=0, timeout=20, **options))


@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_the_state_is_that_of_the_batch_trained_on(serve, ahead):
    """However far a trainer fetches ahead, over how many steps."""
    data, service = None, serve()
    number, state = 0, {}
    for part in (5, 1, 4):
        data = feed(service)
        data.load_state_dict(state)
        batches = iter(data)
        for _ in range(ahead):
            next(batches)
        for _ in range(part):
            next(batches)
            data.trained()
            number += 1
            state = data.state_dict()
            check_state(state, number)
        check(data._fetched[0], number)
        data.close()


def test_states_are_asked_for_before_the_service_forgets_them(serve):
    service = serve()
    forgets = service.state

    def state(request):
        assert request.step >= service.acked, f"step {request.step} is gone"
        return forgets(request)

    service.state = state
    data = feed(service, prefetch=0)
    for _ in range(9):  # four steps ahead
        next(data)
    for number in range(1, 9):
        data.trained()
        check_state(data.state_dict(), number)
    data.close()


def test_what_was_not_trained_on_comes_again(serve):
    data = feed(serve())
    number = 0
    for part in (3, 1, 0, 2):  # epochs of a trainer that fetches two ahead
        batches = iter(data)
        fetched = [next(batches) for _ in range(part + 2)]
        for batch in fetched[:part]:
            check(batch, number)
            data.trained()
            number += 1
    check_state(data.state_dict(), number)
    data.close()


def test_a_newer_iteration_ends_the_one_before(serve):
    """As a look at a batch begins one: a loop that went on would pass over batches."""
    data = feed(serve())
    loop = iter(data)
    fetched = [next(loop) for _ in range(3)]
    look = iter(data)  # nothing was asked of it so far
    fetched.append(next(loop))
    data.trained(fetched[0])
    check(next(look), 1)
    over = pytest.raises(millrace.UserError, match="another iteration of the same data has begun")
    with over:
        next(loop)
    with over:
        data.trained(fetched[2])
    data.trained(fetched[1].to("cpu"))  # what was given to both
    for batch in ([], [fetched[2]]):
        with over:
            data.trained(*batch)
    check_state(data.state_dict(), 2)
    check(next(look), 2)
    check(next(data), 2)
    with over:
        next(look)
    data.trained()
    check(next(data), 3)
    check(next(iter(data)), 3)
    assert data.count == 3
    data.close()


def test_a_second_feed_of_a_dataset_passes_over_nothing(serve):
    """As a second attach() makes one: it is refused, unless there is nothing to pass over."""
    service = serve()
    first = feed(service)
    second, third = feed_of(first.dataset, 0, 1, {}), Feed(first.dataset)
    for _ in range(3):
        next(first)
    first.trained()
    with pytest.raises(millrace.UserError, match="2 batches of this dataset were fetched by"):
        next(second)
    assert feed_of(first, 0, 1, {}) is first  # what attach() returned goes on
    check(next(iter(first)), 1)
    first.trained()
    state = first.state_dict()
    second.load_state_dict(state)  # as of a checkpoint
    check(next(second), 2)
    second.trained()
    check(next(third), 3)  # all was trained on
    check_state(third.state_dict(), 3)
    for old in (first, second):
        with pytest.raises(millrace.UserError, match="another Feed of the same dataset has begun"):
            next(old)
    third.trained()
    check_state(third.state_dict(), 4)
    third.close()


def test_before_anything_was_trained_on(serve):
    data = feed(serve())
    next(data)
    start = data.state_dict()
    assert (
        start == beginning() and start.keys() == make(0, 0, b"x").keys()
    )  # as templates have to be
    saved = io.BytesIO()
    torch.save(start, saved)
    saved.seek(0)
    assert torch.load(saved, weights_only=True) == start  # as torch does by default
    assert is_beginning(from_json(to_json(start)))
    for state in (start, {}):  # the other one is of earlier versions
        data.load_state_dict(state)
        check(next(data), 0)
    data.trained()
    with pytest.raises(millrace.UserError, match="it did not come from this feed"):
        data.trained()
    for state in (start, {}):
        with pytest.raises(millrace.UserError, match="no token to go back by"):
            data.load_state_dict(state)
    data.close()


def test_a_change_of_topology_waits_for_what_was_fetched(serve):
    service = serve(steps=2)
    service.topology = "tp1 cp1 dp4 pp1"
    data = feed(service)
    batches = iter(data)
    for _ in range(4):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)
    for _ in range(4):
        data.trained()
    with pytest.raises(millrace.TopologyChanged):
        next(iter(data))
    check_state(data.state_dict(), 4)
    data.close()


def test_the_feed_of_a_dataloader(serve):
    dataset = millrace.torch.Dataset(serve().address, dp_rank=0)
    data = Feed(data_loader(dataset))
    for number in range(3):
        check(next(data), number)
        data.trained()
    check_state(data.state_dict(), 3)
    data.close()


@pytest.mark.parametrize("way", [lambda data: data, data_loader])
def test_an_error_ends_no_feed(serve, way):
    data = Feed(way(millrace.torch.Dataset(serve().address, dp_rank=0)))
    with failing("__next__", 3):
        check_through_an_error(iter(data))
    data.close()


@pytest.mark.parametrize("name", ["__next__", "state_at"])
@own_process
def test_an_error_ends_no_feed_of_a_worker(name):
    with service_process() as address, failing(name, 3):
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        check_through_an_error(iter(Feed(data_loader(dataset, 1, "fork"))))


@pytest.mark.parametrize("persistent", [False, True])
@own_process
def test_a_worker_that_died_ends_no_feed(persistent):
    with service_process() as address:
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        data = Feed(data_loader(dataset, 1, "fork", persistent_workers=persistent))
        for number in range(5):
            check(next(data), number)
            if number < 3:
                data.trained()
        with contextlib.suppress(RuntimeError):  # torch's handler of signals may tell of it here
            os.kill(data._batches._workers[0].pid, signal.SIGKILL)
        number, errors = 5, 0
        while number < 9:  # some may have been on their way
            try:
                check(next(data), number)
                number += 1
            except (RuntimeError, OSError, EOFError):  # the last two of what it had sent
                errors += 1
        assert 1 <= errors <= 2  # torch's handler of signals may tell of it before
        check_state(data.state_dict(), 3)


@contextlib.contextmanager
def dying(after):
    """Has the first worker process die at its first batch: after it took it, or before."""
    real, parent = millrace.torch.Dataset._next, os.getpid()
    died = multiprocessing.get_context("fork").RawValue("b", 0)

    def die(dataset, with_state):
        last = os.getpid() != parent and not died.value
        batch = real(dataset, with_state) if after or not last else None
        if last:
            died.value = 1
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    with mock.patch.object(millrace.torch.Dataset, "_next", die):
        yield


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
@own_process
def test_a_worker_that_died_before_the_first_batch_ends_no_feed(persistent, after, loaded):
    with service_process() as address, dying(after):
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        first = 3 if loaded else 0
        if loaded:  # by the dataset: the feed knows of no state
            dataset.load_state_dict(make(1, 1, fake.Service().token(1)))
        data = Feed(data_loader(dataset, 1, "fork", persistent_workers=persistent))
        errors = 0
        for number in range(first, first + 4):
            while True:
                try:
                    batch = next(data)
                    break
                except RuntimeError:
                    errors += 1
            check(batch, number)
            data.trained()
            check_state(data.state_dict(), number + 1)
        assert 1 <= errors <= 2  # torch's handler of signals may tell of it before


@own_process
def test_a_worker_that_died_and_left_no_state_ends_no_data():
    with service_process() as address:
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30, state_every=0)
        data = Feed(data_loader(dataset, 1, "fork"))
        check(next(data), 0)
        worker = data._batches._workers[0]
        with contextlib.suppress(RuntimeError):  # torch's handler of signals may tell of it here
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
        number, errors = 1, []
        while len(errors) < 4:
            try:
                check(next(data), number)  # some may have been on their way
                number += 1
            except (RuntimeError, OSError, EOFError, millrace.UserError) as error:
                errors.append(error)
        for error in errors[-2:]:
            assert isinstance(error, millrace.UserError), error
            assert "is not known: this batch came without its state" in str(error)
        data.load_state_dict(make(1, 1, fake.Service().token(1)))
        check(next(data), 3)


def test_a_batch_that_no_batch_was_made_of_comes_again(serve):
    """Without a worker, too, and before the first one is there."""
    fails = [True, False, True, False, False]

    def collate(batch):
        if fails.pop(0):
            raise ValueError("no room")
        return batch

    dataset = millrace.torch.Dataset(serve().address, dp_rank=0)
    data = Feed(data_loader(dataset, collate_fn=collate))
    for number in range(2):
        with pytest.raises(ValueError, match="no room"):
            next(data)
        check(next(data), number)
        data.trained()
    data.close()


def test_the_end(serve):
    data = feed(serve(steps=2))
    for batch in data:
        assert not data.ended
        last = batch
        if batch.step < 1:
            data.trained()
    assert not data.ended  # what was not trained on comes again
    for batch in data:
        data.trained()
        again = batch
    assert data.ended and again.step == last.step
    data.load_state_dict(data.state_dict())
    assert not data.ended and list(data) == [] and data.ended
    data.close()


@pytest.mark.parametrize("persistent", [False, True])
@own_process
def test_a_state_ends_the_worker(persistent):
    with service_process() as address:
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        data = Feed(data_loader(dataset, 1, "fork", persistent_workers=persistent))
        for number in range(7):
            check(next(data), number)
            data.trained()
            if number == 2:
                state = data.state_dict()
        data.load_state_dict(state)
        check(next(iter(data)), 3)


def checkpoint(state):
    """Returns what Transformers' Trainer knows of a checkpoint of step 5, when it resumes."""
    data = to_json(state) if state else None
    saved = {"args": {}, "attributes": {"data": data}}
    kept = {millrace.transformers.KEY: saved} if state else {}
    return types.SimpleNamespace(global_step=5, stateful_callbacks=kept)


def test_trainer_resumes_again(serve):
    """In the same process, whatever was trained on there since the checkpoint."""
    data = feed(serve())
    for _ in range(3):
        next(data)
        data.trained()
    state = data.state_dict()
    for _ in range(4):
        next(data)
        data.trained()
    millrace.transformers._load(data, checkpoint(state))
    check(next(iter(data)), 3)
    data.trained()
    with pytest.raises(millrace.UserError, match="has no state of the data"):
        millrace.transformers._load(data, checkpoint({}))
    data.load_state_dict(state)
    millrace.transformers._load(data, checkpoint({}))  # by hand
    check(next(iter(data)), 3)
    data.close()


def test_arguments(serve):
    with pytest.raises(millrace.UserError, match="the data is a list"):
        Feed(torch.utils.data.DataLoader([1, 2]))
    dataset = millrace.torch.Dataset(serve().address, dp_rank=0)
    with pytest.raises(millrace.UserError, match="leave out dp_rank"):
        feed_of(dataset, 0, 1, {"dp_rank": 1})
    data = feed_of(serve().address, 1, 2, {})
    assert next(data).step == 0 and data.dataset.loader._config.dp.rank == 1
    data.close()


def test_transformers_take_a_choice_of_tensors_with_bounds():
    args = types.SimpleNamespace(n_gpu=1, process_index=0, world_size=1)
    trainer = types.SimpleNamespace(args=args)
    chosen = ["input_ids", "labels", "position_ids", "cu_seq_lens_q", "cu_seq_lens_k"]
    for given in (None, millrace.torch.Dataset("a:1", dp_rank=0, tensors=chosen)):
        options = {} if given else {"address": "a:1", "tensors": chosen}
        with pytest.raises(millrace.UserError, match="without 'max_length_q', 'max_length_k': "):
            millrace.transformers.attach(trainer, given or options.pop("address"), **options)
    assert vars(trainer) == {"args": args}


def test_qwen2_vl_takes_a_choice_of_tensors_with_what_it_changes():
    place = types.SimpleNamespace(images={"source": torch.zeros(0, 8)}, shapes=None)
    batch = millrace.torch.Batch({"input_ids": torch.zeros(1, 4)}, place)
    with pytest.raises(millrace.UserError, match=r"has no position_ids: .* leave tensors out"):
        millrace.transformers.qwen2_vl(batch, 0.5, 0.5)
