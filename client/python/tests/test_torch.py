"""The adapter to torch.utils.data.DataLoader, with and without a worker process."""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
import pickle
import weakref
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from fake import Service  # noqa: E402
from processes import own_process, service_process  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import millrace  # noqa: E402
import millrace.torch  # noqa: E402
from millrace.feed import Feed  # noqa: E402

OLD = tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 0)
METHODS = pytest.mark.parametrize("method", ["fork", "spawn"])


def data_loader(dataset, workers=0, method=None, **options):
    context = {"multiprocessing_context": method, "timeout": 60} if workers else {}
    options.setdefault("collate_fn", millrace.torch.keep)
    return DataLoader(dataset, batch_size=None, num_workers=workers, **context, **options)


def first(dataset, workers, method):
    """Returns the first batch; ends the worker now, not when garbage is collected.

    A spawned worker of PyTorch 1 that still writes tensors to its queue as its interpreter ends
    may abort there, with any dataset, and the DataLoader says so.
    """
    iterator = iter(data_loader(dataset, workers, method))
    try:
        return next(iterator)
    finally:
        try:
            iterator._shutdown_workers()
        except RuntimeError as error:
            if not (OLD and method == "spawn" and "killed by signal: Aborted" in str(error)):
                raise


def check(batch, number, microbatches=2):
    """Asserts that batch is microbatch ``number`` of rank 0, with its values and place."""
    step, microbatch = divmod(number, microbatches)
    assert (batch.step, batch.microbatch) == (step, microbatch)
    want = Service().arrays(step, (0, 0, 0, 0), microbatch)
    assert list(batch) == list(want)
    for name, array in want.items():
        assert torch.is_tensor(batch[name]) and batch[name].numpy().dtype == array.dtype
        np.testing.assert_array_equal(batch[name].numpy(), array)


def check_state(state, number, microbatches=2):
    """Asserts that state is that after ``number`` microbatches."""
    assert (state["step"], state["microbatch"]) == divmod(number, microbatches)
    assert state["token"] == Service().token(state["step"])


@contextlib.contextmanager
def failing(name, number):
    """Has a method of all loaders raise LostError at its call of that number, once."""
    real, calls = getattr(millrace.Loader, name), itertools.count(1)

    def method(*arguments):
        if next(calls) == number:
            raise millrace.LostError("the service is gone")
        return real(*arguments)

    with mock.patch.object(millrace.Loader, name, method):
        yield


def check_through_an_error(iterator, count=8):
    """Asserts that an error ends no iterator, and that no batch is lost by one."""
    number = errors = 0
    while number < count:
        try:
            batch = next(iterator)
        except millrace.LostError:
            errors += 1
            continue
        check(batch, number)
        number += 1
        check_state(batch.state_dict(), number)
    assert errors == 1


def test_without_worker(serve, recwarn):
    service = serve(steps=4)
    dataset = millrace.torch.Dataset(service.address, dp_rank=0)
    for number, batch in enumerate(data_loader(dataset)):
        check(batch, number)
        check_state(dataset.state_dict(), number + 1)
        check_state(batch.state_dict(), number + 1)
        batch["tokens"] += 1  # writable
    assert number == 7 and list(dataset) == []
    assert not [w for w in recwarn if "writ" in str(w.message)]
    dataset.close()


def test_state_of_a_batch_is_asked_for_only_when_wanted(serve):
    service = serve()
    dataset = millrace.torch.Dataset(service.address, dp_rank=0)
    batches = [batch for _, batch in zip(range(8), dataset)]
    assert service.count("State") == 0
    check_state(batches[2].state_dict(), 3)  # of an earlier batch, too
    check_state(batches[6].state_dict(), 7)
    assert service.count("State") == 2
    dataset.close()


def test_resume_without_worker(serve):
    service = serve()
    state = None
    for first in (0, 3, 5, 9):
        with millrace.connect(service.address, dp_rank=0) as loader:
            dataset = millrace.torch.Dataset(loader)
            if state is not None:
                dataset.load_state_dict(state)
                assert dataset.state_dict() == state
            for number, batch in zip(range(first, {0: 3, 3: 5, 5: 9, 9: 11}[first]), dataset):
                check(batch, number)
                state = batch.state_dict()


@METHODS
@own_process
def test_with_worker(method):
    with service_process(steps=6) as address:
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        states = []
        for number, batch in enumerate(data_loader(dataset, 1, method)):
            check(batch, number)
            check_state(batch.state_dict(), number + 1)
            states.append(batch.state_dict())
        assert number == 11
        for number in (0, 4, 5) if method == "fork" else (4,):
            dataset.load_state_dict(states[number])
            resumed = iter(data_loader(dataset, 1, method))
            for more in range(1, 4):
                batch = next(resumed)
                check(batch, number + more)
                check_state(batch.state_dict(), number + more + 1)
            del resumed


@METHODS
@own_process
def test_main_process_does_not_guess_the_workers_position(method):
    with service_process() as address:
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        if method == "spawn":
            check_state(dataset.state_dict(), 0)  # fine before; but it connects
        iterator = iter(data_loader(dataset, 1, method))
        batch = next(iterator)
        check(batch, 0)
        with pytest.raises(millrace.UserError, match=r"batch\.state_dict"):
            dataset.state_dict()
        del iterator
        with pytest.raises(millrace.UserError, match="another process iterated"):
            first(dataset, 1, method)  # would begin again, silently
        dataset.load_state_dict(batch.state_dict())
        assert dataset.state_dict() == batch.state_dict()
        check(first(dataset, 1, method), 1)
        dataset.close()


@own_process
def test_persistent_worker_goes_on():
    with service_process(steps=3) as address:
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        loader = data_loader(dataset, 1, "fork", persistent_workers=True)
        assert len(list(loader)) == 6
        assert len(list(loader)) == 0


@pytest.mark.parametrize("way", [iter, lambda data: iter(data_loader(data))])
def test_an_error_ends_no_iterator(serve, way):
    dataset = millrace.torch.Dataset(serve().address, dp_rank=0)
    with failing("__next__", 3):
        check_through_an_error(way(dataset))
    dataset.close()


@pytest.mark.parametrize("name", ["__next__", "state_at"])
@own_process
def test_an_error_ends_no_iterator_with_a_worker(name):
    with service_process() as address, failing(name, 3):
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        check_through_an_error(iter(data_loader(dataset, 1, "fork")))


def test_topology_changes_for_good(serve):
    service = serve(steps=1)
    service.topology = "tp1 cp1 dp4 pp1"
    dataset = millrace.torch.Dataset(service.address, dp_rank=0)
    batches = iter(dataset)
    for _ in range(2):
        next(batches)
    for _ in range(2):
        with pytest.raises(millrace.TopologyChanged):
            next(batches)
    dataset.close()


def test_a_batch_whose_state_did_not_come_is_the_next(serve):
    dataset = millrace.torch.Dataset(serve().address, dp_rank=0)
    for number in range(3):
        check(dataset._next(with_state=True), number)
    with failing("state_at", 1), pytest.raises(millrace.LostError):
        dataset._next(with_state=True)
    state = dataset.state_dict()
    check_state(state, 3)
    check(next(iter(dataset)), 3)
    check_state(dataset.state_dict(), 4)
    with failing("state_at", 1), pytest.raises(millrace.LostError):
        dataset._next(with_state=True)
    dataset.load_state_dict(state)
    assert dataset.state_dict() == state
    check(next(iter(dataset)), 3)
    dataset.close()


@METHODS
@own_process
def test_a_persistent_worker_before_the_end_is_refused(method):
    """It is ahead of what came of it, and knows no state that was loaded here."""
    with service_process(steps=5) as address:
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        loader = data_loader(dataset, 1, method, persistent_workers=True)
        batch = next(iter(loader))
        check(batch, 0)
        for _ in range(2):
            with pytest.raises(millrace.UserError, match=r"millrace\.feed\.Feed"):
                next(iter(loader))
            dataset.load_state_dict(batch.state_dict())
        whole = data_loader(dataset, 1, method, persistent_workers=True)
        assert len(list(whole)) == 9 and len(list(whole)) == 0
        dataset.load_state_dict(batch.state_dict())
        with pytest.raises(millrace.UserError, match=r"millrace\.feed\.Feed"):
            list(whole)


@own_process
def test_state_every():
    with service_process(steps=6) as address:
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30, state_every=3)
        for number, batch in enumerate(data_loader(dataset, 1, "fork")):
            if (number + 1) // 2 % 3 == 0:
                check_state(batch.state_dict(), number + 1)
            else:
                with pytest.raises(millrace.UserError, match="state_every"):
                    batch.state_dict()


@own_process
def test_more_workers_are_refused():
    dataset = millrace.torch.Dataset("127.0.0.1:9", dp_rank=0)
    with pytest.raises(millrace.UserError, match="use 0 or 1"):
        first(dataset, 2, "fork")


@own_process
def test_errors_keep_their_type_through_a_worker():
    with service_process() as address:
        dataset = millrace.torch.Dataset(address, dp_rank=7)
        with pytest.raises(millrace.UserError, match="no such dp rank"):
            first(dataset, 1, "fork")


def consume_until_the_change(loader):
    """Returns the last batch before the topology changes, and the error that says so."""
    iterator, batch = iter(loader), None
    try:
        while True:
            batch = next(iterator)
    except millrace.TopologyChanged as changed:
        return batch, changed
    finally:
        getattr(iterator, "_shutdown_workers", lambda: None)()


@pytest.mark.parametrize(("workers", "method"), [(0, None), (1, "fork"), (1, "spawn")])
@own_process
def test_another_topology(workers, method):
    """The step, the mesh and the state survive the worker's traceback."""
    with service_process(steps=3, topology="tp2 cp1 dp4 pp1") as address:
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        batch, changed = consume_until_the_change(data_loader(dataset, workers, method))
        assert changed.step == 3
        assert changed.topology == {"tp": 2, "cp": 1, "dp": 4, "pp": 1}
        check(batch, 5)
        check_state(batch.state_dict(), 6)
        if not workers:
            assert dataset.state_dict() == batch.state_dict()
        dataset.close()


@own_process
def test_reports_beside_a_worker():
    """The main process reports for the worker's rank, and the worker goes on."""
    with service_process(steps=6) as address:
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        for number, batch in enumerate(data_loader(dataset, 1, "fork")):
            check(batch, number)
            dataset.loader.report({"web": 1.0}, step=batch.step)
        assert number == 11
        dataset.close()


def test_a_batch_travels_with_its_state(serve):
    service = serve()
    dataset = millrace.torch.Dataset(service.address, dp_rank=0)
    batch = next(iter(dataset))
    for made in (copy.copy(batch), pickle.loads(pickle.dumps(batch)), batch.to("cpu")):
        assert isinstance(made, dict) and type(made) is millrace.torch.Batch
        assert (made.rows, made.sequence_length, made.extras) == (8, 64, {})
        check(made, 0)
        check_state(made.state_dict(), 1)
    assert service.count("State") == 0  # the middle of step 0 has the token of joining
    dataset.close()


def test_images_stay_beside_the_batch(serve):
    service = serve()
    service.images = True
    dataset = millrace.torch.Dataset(service.address, dp_rank=0)
    for number, batch in zip(range(4), dataset):
        for made in (batch, copy.copy(batch), pickle.loads(pickle.dumps(batch))):
            place = (number // 2, (0, 0, 0, 0), number % 2)
            assert list(made) == list(service.arrays(*place))  # the model's keys only
            want = service.places(*place)
            assert ["image." + name for name in made.images] == list(want)
            for name, array in made.images.items():
                np.testing.assert_array_equal(array, want["image." + name])
    dataset.close()


@pytest.mark.parametrize("workers", [0, 1])
@own_process
def test_without_collate_fn(workers):
    with service_process() as address:
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        loader = iter(data_loader(dataset, workers, "fork", collate_fn=None))
        if OLD:
            with pytest.raises(millrace.UserError, match="collate_fn"):
                next(loader)
        else:
            batch = next(loader)
            check(batch, 0)
            check_state(batch.state_dict(), 1)
        dataset.close()


def rebuilt(batch, change):
    """As Transformers, Accelerate and Lightning rebuild a mapping."""
    return type(batch)({key: change(value) for key, value in batch.items()})


def test_a_rebuilt_batch_keeps_its_place(serve):
    service = serve()
    dataset = millrace.torch.Dataset(service.address, dp_rank=0)
    for number, batch in zip(range(3), dataset):
        made = rebuilt(rebuilt(batch, lambda value: value.clone()), lambda value: value)
        check(made, number)
        check_state(made.state_dict(), number + 1)
        assert all(type(key) is str for key in {**made})  # what torch.compile sees
        assert type(dict(made)) is dict
    dataset.close()


def recursive_to(batch, device):
    """As torch.distributed moves the inputs of DDP and FSDP to their device, of late by keys()."""
    if not OLD:
        from torch.distributed.utils import _recursive_to

        return _recursive_to((batch,), device, False)[0][0]

    def moved(given):
        if torch.is_tensor(given):
            return (given.to(device),)
        if isinstance(given, (tuple, dict)):
            items = given.items() if isinstance(given, dict) else given
            kind = list if isinstance(given, tuple) else type(given)
            return [kind(made) for made in zip(*map(moved, items))]
        return [given]

    return moved(batch)[0]


def test_a_batch_that_is_made_of_pairs_keeps_its_place(serve):
    dataset = millrace.torch.Dataset(serve().address, dp_rank=0)
    batch = next(iter(dataset))
    made = recursive_to(batch, torch.device("meta"))
    assert type(made) is millrace.torch.Batch and list(made) == list(batch)
    assert made["tokens"].is_meta and all(type(key) is str for key in made)
    check_state(made.state_dict(), 1)
    check(type(batch)((key, value.clone()) for key, value in batch.items()), 0)
    check(type(batch)(zip(list(batch.keys()), batch.values())), 0)
    assert all(type(key) is str for keys in (batch, {**batch}, dict(batch)) for key in keys)
    assert [*reversed(batch.keys())] == [key for key, _ in reversed(batch.items())]
    assert all(type(key) is str for key in pickle.loads(pickle.dumps(list(batch.keys()))))
    with pytest.raises(millrace.UserError, match="cannot be made of"):
        type(batch)(tuple(dict(batch).items()))
    dataset.close()


def test_a_batch_in_parts_is_refused(serve):
    """What Accelerate would do to it: join those of several ranks, and cut them in parts."""
    dataset = millrace.torch.Dataset(serve().address, dp_rank=0)
    batch = next(iter(dataset))
    with pytest.raises(millrace.UserError, match="tokens of step 0, microbatch 0 came as"):
        rebuilt(batch, lambda value: value[:1] if value.ndim else value)
    with pytest.raises(millrace.UserError, match=r"millrace\.accelerate\.prepare"):
        type(batch)({key: torch.stack([batch[key]] * 2) for key in batch})
    dataset.close()


def test_no_cache_for_models_of_packed_lines(serve):
    """With one, Transformers lets the documents of a line see each other."""
    for format, want in (("hf", False), ("megatron", None)):
        dataset = millrace.torch.Dataset(serve(format=format).address, dp_rank=0)
        assert next(iter(dataset)).get("use_cache") is want
        dataset.close()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pinned memory needs a GPU")
def test_pinned_memory():
    with service_process() as address:
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        iterator = iter(data_loader(dataset, 1, "spawn", pin_memory=True))
        for number in range(4):
            batch = next(iterator)
            assert batch["tokens"].is_pinned()
            on_gpu = batch.to("cuda", non_blocking=True)
            assert on_gpu["tokens"].is_cuda
            check(on_gpu.to("cpu"), number)
            check_state(on_gpu.state_dict(), number + 1)


def test_pinning_keeps_the_place(serve, monkeypatch):
    """Where there is no GPU, the copies are at least made the way DataLoader makes them."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, *device: self.clone())
    from torch.utils.data._utils.pin_memory import pin_memory

    service = serve()
    dataset = millrace.torch.Dataset(service.address, dp_rank=0)
    pinned = pin_memory(next(iter(dataset)))
    check(pinned, 0)
    check_state(pinned.state_dict(), 1)
    dataset.close()


def test_arguments():
    loader = millrace.connect("127.0.0.1:9", dp_rank=0)
    with pytest.raises(millrace.UserError, match="leave out dp_rank"):
        millrace.torch.Dataset(loader, dp_rank=0)
    with pytest.raises(millrace.UserError, match="state_every"):
        millrace.torch.Dataset(loader, state_every=-1)
    with pytest.raises(TypeError):
        len(millrace.torch.Dataset(loader))


def test_a_dataloader_that_would_stack_is_refused(serve):
    service = serve()
    for options in ({}, {"batch_size": 4}):
        data = millrace.torch.Dataset(service.address, dp_rank=0)
        with pytest.raises(millrace.UserError, match="batch_size=None"):
            next(iter(DataLoader(data, **options)))
        data.close()
    with pytest.raises(millrace.UserError, match="state_every is 'x'"):
        millrace.torch.Dataset("127.0.0.1:9", dp_rank=0, state_every="x")


def test_aliases(serve):
    dataset = millrace.torch.Dataset(serve().address, dp_rank=0)
    next(iter(dataset))
    assert dataset.save_state() == dataset.get_state() == dataset.state_dict()
    dataset.set_epoch(1)
    dataset.close()


@own_process
def test_a_forked_worker_after_use_here_is_refused():
    with service_process() as address:
        dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=30)
        check_state(dataset.state_dict(), 0)
        with pytest.raises(millrace.UserError, match="spawn"):
            first(dataset, 1, "fork")
        check(first(dataset, 1, "spawn"), 0)


@pytest.mark.parametrize("wrap", [iter, data_loader, Feed, lambda data: Feed(data_loader(data))])
def test_dropped(serve, wrap):
    """A dataset that nobody has any more leaves no loader to the collector of cycles."""
    service = serve(steps=4, microbatches=2)
    gc.collect()
    gc.disable()
    try:
        loader = millrace.connect(service.address, dp_rank=0)
        gone = weakref.ref(loader)
        batches = wrap(millrace.torch.Dataset(loader))
        del loader
        for batch in batches:
            assert batch.to("cpu").replaced(batch)["tokens"] is batch["tokens"]
            if batch.step == 1:
                break
        assert batch.state_dict()["step"] == 1 and gone() is not None  # which asks the loader
        del batch, batches
        assert gone() is None
    finally:
        gc.enable()
