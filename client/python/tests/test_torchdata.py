"""torchdata's StatefulDataLoader: its state resumes exactly, with and without a worker."""

from __future__ import annotations

import contextlib

import pytest
from processes import BINARY, real_service, service_process, write_job

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")
stateful = pytest.importorskip(
    "torchdata.stateful_dataloader", reason="torchdata is not installed: pip install torchdata"
)

import millrace  # noqa: E402
import millrace.torch  # noqa: E402


@pytest.fixture(params=["fake", "real"])
def address(request, tmp_path):
    if request.param == "fake":
        with service_process() as found:
            yield found
        return
    if not BINARY:
        pytest.skip("set MILLRACE_BIN to the millrace binary to test against the real service")
    with real_service(write_job(tmp_path, dp=1)) as found:
        yield found


@contextlib.contextmanager
def data_loader(address, workers):
    dataset = millrace.torch.Dataset(address, dp_rank=0, timeout=60)
    context = {"multiprocessing_context": "spawn", "timeout": 120} if workers else {}
    yield stateful.StatefulDataLoader(
        dataset, batch_size=None, collate_fn=millrace.torch.keep, num_workers=workers, **context
    )
    if not workers:
        dataset.close()


def take(iterator, count):
    """Returns the next ``count`` batches as values that can be compared."""
    found = []
    for _ in range(count):
        batch = next(iterator)
        found.append((batch.step, batch.microbatch, batch["tokens"].tolist()))
    return found


@pytest.mark.parametrize("workers", [0, 1])
def test_resume(address, workers):
    with data_loader(address, 0) as loader:
        want = take(iter(loader), 14)
    got, state = [], None
    for part in (3, 2, 4):
        with data_loader(address, workers) as loader:
            if state is not None:
                loader.load_state_dict(state)
            iterator = iter(loader)
            got += take(iterator, part)
            state = loader.state_dict()
            del iterator
    assert got == want[:9]


@pytest.mark.parametrize("workers", [0, 1])
def test_state_right_after_restore(address, workers):
    with data_loader(address, workers) as loader:
        iterator = iter(loader)
        want = take(iterator, 3)
        state = loader.state_dict()
        want += take(iterator, 3)
        del iterator
    for _ in range(2):
        with data_loader(address, workers) as loader:
            loader.load_state_dict(state)
            iterator = iter(loader)
            state = loader.state_dict()  # saved before anything was returned
            assert take(iterator, 3) == want[3:]
            del iterator


def test_a_second_pass_with_a_worker(tmp_path):
    """A new worker does not know where the one before ended, and says what to do."""
    with service_process() as address, data_loader(address, 1) as loader:
        got = take(iter(loader), 4)
        with pytest.raises(millrace.UserError, match=r"load_state_dict\(loader\.state_dict\(\)\)"):
            next(iter(loader))
        loader.load_state_dict(loader.state_dict())
        got += take(iter(loader), 4)
    with service_process() as address, data_loader(address, 0) as loader:
        assert got == take(iter(loader), 8)
