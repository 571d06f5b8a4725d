"""What the adapter to Megatron-LM asks of its arguments."""

from __future__ import annotations

import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from test_torch import failing  # noqa: E402

import millrace  # noqa: E402
import millrace.megatron  # noqa: E402

RANK = {"tp_rank": 0, "pp_rank": 0}


def arguments(**given):
    return types.SimpleNamespace(tensor_model_parallel_size=2, **given)


@pytest.mark.parametrize("mesh", [(1, 1, 1, 2, 1), (1, 1, 4, 1, 1)])
def test_bounds_that_other_ranks_would_not_get(serve, open_loader, mesh):
    loader = open_loader(serve(mesh=mesh), **RANK)
    off = arguments(dataloader_inter_document_masking=False)
    with pytest.raises(millrace.UserError, match="Start Megatron-LM with --dataloader-inter-doc"):
        next(millrace.megatron.data_iterator(loader, off))
    with pytest.raises(millrace.UserError, match="does not know it: update it"):
        next(millrace.megatron.data_iterator(open_loader(serve(mesh=mesh), **RANK), arguments()))


@pytest.mark.parametrize("mesh", [(1, 1, 1, 2, 1), (1, 1, 4, 1, 1), (1, 1, 2, 1, 1)])
def test_bounds_that_all_ranks_get(serve, open_loader, mesh):
    service = serve(mesh=mesh)
    on = arguments(dataloader_inter_document_masking=mesh[3] > 1 or mesh[2] > 2)
    batches = millrace.megatron.data_iterator(open_loader(service, **RANK), on)
    for number in range(4):
        batch, want = next(batches), service.arrays(number // 2, (0, 0, 0, 0), number % 2)
        assert list(batch) == list(want)
        assert all(torch.equal(batch[key], torch.from_numpy(want[key])) for key in want)


def test_the_iterator_goes_on_after_an_error_and_has_the_state(serve, open_loader):
    service, alone = serve(mesh=(1, 1, 1, 1, 1)), arguments()
    batches = millrace.megatron.data_iterator(open_loader(service, **RANK), alone)
    assert iter(batches) is batches
    with failing("__next__", 2):
        next(batches)
        with pytest.raises(millrace.LostError):
            next(batches)
    next(batches)
    want = next(batches)
    state = batches.save_state()  # as Megatron-LM asks for it
    assert (state["step"], state["microbatch"]) == (1, 1) and state == batches.state_dict()
    resumed = millrace.megatron.data_iterator(open_loader(service, **RANK), alone)
    resumed.load_state_dict(state)
    assert torch.equal(want["tokens"], torch.from_numpy(service.arrays(1, (0,) * 4, 0)["tokens"]))
    got = next(resumed)["tokens"]
    assert torch.equal(got, torch.from_numpy(service.arrays(1, (0,) * 4, 1)["tokens"]))


def test_rows_that_are_not_packed(serve, open_loader):
    service = serve(mesh=(1, 1, 1, 2, 1))
    arrays = service.arrays
    service.arrays = lambda *place: {"tokens": arrays(*place)["tokens"]}
    off = arguments(dataloader_inter_document_masking=False)
    assert list(next(millrace.megatron.data_iterator(open_loader(service, **RANK), off))) == [
        "tokens"
    ]


def test_other_formats(serve, open_loader):
    with pytest.raises(millrace.UserError, match="write megatron"):
        millrace.megatron.data_iterator(open_loader(serve(format="hf")), arguments())


def test_without_megatron(serve, open_loader):
    with pytest.raises(millrace.UserError, match="give args="):
        millrace.megatron.data_iterator(open_loader(serve()))
