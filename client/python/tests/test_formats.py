"""The output formats beside megatron and hf, and the adapters that hand them to trainers."""

from __future__ import annotations

import abc
import contextlib
import json
import pickle

import fake
import numpy as np
import pytest
from processes import needs_binary, real_service, write_job

import millrace
import millrace.jax
import millrace.megatron
import millrace.messages
import millrace.torchtitan
from millrace import digest, dump


class Titan(fake.Service):
    """Serves format torchtitan: two rows of 64."""

    def arrays(self, step, rank, microbatch):
        draw = np.random.default_rng([step, *rank, microbatch])
        made = draw.integers(0, 500, (2, 128), dtype=np.int64)
        positions = np.tile(np.arange(64), 2)
        return {"input": made[0], "positions": positions, "labels": made[1]}


@pytest.fixture
def titan():
    service = Titan(format="torchtitan", steps=6).start()
    yield service
    service.stop()


# ---- the digest of packed sequences ----

# What two CP ranks get of rows [11 12 13] [21] and [31 .. 36] of 12 places, padded to
# multiples of 4: the golden case of internal/constructor/assemble.
THD = ([11, 0, 21, 0, 0, 0, 31, 32, 0, 0, 0, 0], [12, 13, 0, 0, 0, 0, 33, 34, 35, 36, 0, 0])
BOUNDS = np.array([0, 4, 8, 12, 20, 24], np.int32)
DOCUMENTS = [[[11, 12, 13], [21]], [[31, 32, 33, 34, 35, 36]]]


def test_packed_documents_join():
    parts = [np.array(part) for part in THD]
    rows = digest.cut_segments(parts, BOUNDS, [[3, 1], [6]], "zigzag")
    assert [[d.tolist() for d in row] for row in rows] == DOCUMENTS
    whole = np.array([11, 12, 13, 0, 21, *[0] * 7, 31, 32, 33, 34, 35, 36, *[0] * 6])
    rows = digest.cut_segments([whole, whole], BOUNDS, [[3, 1], [6]], "none")
    assert [[d.tolist() for d in row] for row in rows] == DOCUMENTS
    for lengths in ([[5, 1], [6]], [[3, 1, 6, 4], [6]], [[3], [1, 6, 9, 9]]):
        with pytest.raises(digest.UserError, match="does not agree with its bounds"):
            digest.cut_segments(parts, BOUNDS, lengths, "zigzag")


def test_documents_of_flat_rows():
    part = dump.Rows([0, 1], [[2], [1, 1]], np.array([1, 2, 0, 3, 4, 0]), {}, None)
    rows = digest.documents_of("torchtitan", "none", [part.tokens], part.bounds, part.lengths)
    assert [[d.tolist() for d in row] for row in rows] == [[[1, 2]], [[3], [4]]]


# ---- torchtitan ----


def batches(data, count):
    return [item for _, item in zip(range(count), data)]


def test_torchtitan_pairs(titan):
    pytest.importorskip("torch", reason="torch is not installed")
    config = millrace.torchtitan.DataLoader.Config(titan.address)
    data = config.build(dp_rank=0, dp_world_size=2, tokenizer=None, num_tokens_per_batch=128)
    for number, (inputs, labels) in enumerate(batches(data, 5)):
        want = titan.arrays(number // 2, (0, 0, 0, 0), number % 2)
        assert list(inputs) == ["input", "positions"]
        for name, tensor in {**inputs, "labels": labels}.items():
            assert tensor.shape == (128,)
            np.testing.assert_array_equal(tensor.numpy(), want[name])
    state = data.state_dict()
    assert (state["step"], state["microbatch"]) == (2, 1)
    data.close()
    # The older shape, and a resume.
    data = config.build(dp_rank=0, dp_world_size=2, seq_len=64, local_batch_size=2)
    data.load_state_dict({})  # a checkpoint without data
    data.load_state_dict(state)
    ((inputs, labels),) = batches(data, 1)
    want = titan.arrays(2, (0, 0, 0, 0), 1)
    assert inputs["input"].shape == labels.shape == (2, 64)
    np.testing.assert_array_equal(labels.numpy().reshape(-1), want["labels"])
    assert len(list(data)) == 2 * 6 - 6 and list(data) == []
    data.close()


def test_torchtitan_config_of_classes_and_their_loaders(titan):
    config = millrace.torchtitan.DataLoader.Config

    class Derived(millrace.torchtitan.DataLoader, abc.ABC):  # which has a metaclass
        pass

    class Own(millrace.torchtitan.DataLoader):
        class Config:
            pass

    for kind in (millrace.torchtitan.DataLoader, Derived):
        data = kind(titan.address, dp_rank=0)
        assert kind.Config is data.Config is config
        data.close()
    assert Own.Config is not config
    made = config("a:1", options={"cp_rank": 0})
    assert pickle.loads(pickle.dumps(made)) == made


def test_torchtitan_leaves_images_their_shape(monkeypatch, titan):
    pytest.importorskip("torch", reason="torch is not installed")
    arrays = titan.arrays
    pixels = np.arange(5 * 12, dtype=np.uint8).reshape(5, 12)
    monkeypatch.setattr(titan, "arrays", lambda *at: {**arrays(*at), "pixel_values": pixels})
    data = millrace.torchtitan.DataLoader(titan.address, dp_rank=0, seq_len=64)
    ((inputs, _),) = batches(data, 1)
    assert inputs["input"].shape == (2, 64)
    np.testing.assert_array_equal(inputs["pixel_values"].numpy(), pixels)
    data.close()


def test_torchtitan_writes_to_no_shared_memory(monkeypatch, titan, recwarn):
    pytest.importorskip("torch", reason="torch is not installed")
    given = {name: np.zeros((64, 2), np.int64) for name in ("input", "labels", "pixel_values")}
    for array in given.values():
        array.flags.writeable = False
    monkeypatch.setattr(millrace.Loader, "__next__", lambda loader: given)
    data = millrace.torchtitan.DataLoader(titan.address, dp_rank=0, seq_len=64)
    inputs, labels = next(iter(data))
    for tensor in (*inputs.values(), labels):
        tensor += 1
    assert not any(array.any() for array in given.values()) and not recwarn.list
    data.close()


def test_an_error_ends_no_torchtitan_iterator(titan):
    pytest.importorskip("torch", reason="torch is not installed")
    from test_torch import failing

    data = millrace.torchtitan.DataLoader(titan.address, dp_rank=0)
    pairs = iter(data)
    with failing("__next__", 2):
        next(pairs)
        with pytest.raises(millrace.LostError):
            next(pairs)
    want = titan.arrays(0, (0, 0, 0, 0), 1)
    np.testing.assert_array_equal(next(pairs)[1].numpy(), want["labels"])
    data.close()


def test_torchtitan_takes_a_choice_of_tensors_with_labels(titan):
    build = millrace.torchtitan.DataLoader.Config(titan.address, {"tensors": ["input"]}).build
    with pytest.raises(millrace.UserError, match=r"tensors is \['input'\], without 'labels': .*"):
        build(dp_rank=0, dp_world_size=2)
    with pytest.raises(millrace.UserError, match=r"without 'input', 'labels': .* Add them"):
        millrace.torchtitan.DataLoader(titan.address, dp_rank=0, tensors=["positions"])
    with (
        millrace.connect(titan.address, dp_rank=0, tensors=("labels",)) as loader,
        pytest.raises(millrace.UserError, match=r"without 'input': .* Add it"),
    ):
        millrace.torchtitan.DataLoader(loader)
    pytest.importorskip("torch", reason="torch is not installed")
    data = millrace.torchtitan.DataLoader(titan.address, dp_rank=0, tensors=["labels", "input"])
    inputs, labels = next(data)
    assert list(inputs) == ["input"] and labels.shape == (128,)
    data.close()


def test_torchtitan_refuses_what_does_not_fit(titan, serve):
    pytest.importorskip("torch", reason="torch is not installed")
    config = millrace.torchtitan.DataLoader.Config(titan.address)
    for sizes in ({"num_tokens_per_batch": 64}, {"seq_len": 32}, {"seq_len": 48}):
        data = config.build(dp_rank=0, dp_world_size=2, **sizes)
        with pytest.raises(millrace.UserError, match="have 128 tokens"):
            next(iter(data))
        data.close()
    data = millrace.torchtitan.DataLoader(serve().address, dp_rank=0)
    with pytest.raises(millrace.UserError, match="write torchtitan"):
        next(iter(data))
    data.close()


# ---- Megatron-LM's packing ----


class Packed(fake.Service):
    """Serves format megatron-thd; only its rows' lengths matter here."""

    def arrays(self, step, rank, microbatch):
        return {"tokens": np.arange(8) + step, "max_seqlen": np.array([4], np.int32)}


@pytest.fixture
def packed():
    service = Packed(format="megatron-thd", steps=3).start()
    yield service
    service.stop()


def test_megatron_numbers(packed):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    reduced = []

    def all_reduce(numbers):
        reduced.append(numbers)
        return [2 * n for n in numbers]

    with millrace.connect(packed.address, dp_rank=0) as loader:
        for number in range(3):
            assert len(loader.upcoming()) == 2 and loader.position == (number, 0)
            step = millrace.megatron.wrap_data_iterator(loader, all_reduce)
            lengths = [
                n for m in range(2) for row in packed.rows(number, (0, 0, 0, 0), m)
                for n in row.lengths
            ]  # fmt: skip
            assert reduced[-1] == [sum(lengths), sum(n * n for n in lengths)]
            assert step[1:] == (2, 2 * reduced[-1][0], 2 * reduced[-1][1])
            taken = list(step.iterator)
            assert len(taken) == 2 and all(torch.is_tensor(t) for b in taken for t in b.values())
            assert taken[1]["tokens"].tolist() == (np.arange(8) + number).tolist()
            assert loader.position == (number + 1, 0)
        with pytest.raises(StopIteration):
            millrace.megatron.wrap_data_iterator(loader, all_reduce)


def test_megatron_numbers_in_the_middle_of_a_step(packed):
    """After a resume there, they are those of the microbatches that are left."""
    pytest.importorskip("torch", reason="torch is not installed")
    with millrace.connect(packed.address, dp_rank=0) as loader:
        next(loader)
        state = loader.state_dict()
        loader.load_state_dict(state)
        step = millrace.megatron.wrap_data_iterator(loader, list)
        lengths = [n for row in packed.rows(0, (0, 0, 0, 0), 1) for n in row.lengths]
        assert step[1:] == (1, sum(lengths), sum(n * n for n in lengths))
        assert len(list(step.iterator)) == 1 and loader.state_dict()["step"] == 1


def test_megatron_refuses_what_does_not_fit(packed, serve):
    with (
        millrace.connect(packed.address, dp_rank=0, tensors=["tokens"]) as loader,
        pytest.raises(millrace.UserError, match=r"tensors=\['tokens'\], and Megatron-LM"),
    ):
        millrace.megatron.wrap_data_iterator(loader, lambda numbers: numbers)
    with (
        millrace.connect(packed.address, dp_rank=0) as loader,
        pytest.raises(millrace.UserError, match="all_reduce"),
    ):
        millrace.megatron.wrap_data_iterator(loader)
    with (
        millrace.connect(serve().address, dp_rank=0) as loader,
        pytest.raises(millrace.UserError, match="write megatron-thd"),
    ):
        millrace.megatron.wrap_data_iterator(loader)


# ---- JAX ----


def test_jax_state_is_json(serve):
    service = serve()
    data = millrace.jax.Iterator(service.address, dp_rank=0)
    next(data.loader), next(data.loader), next(data.loader)
    state = data.get_state()
    assert json.loads(state)["step"] == 1 and json.loads(state)["microbatch"] == 1
    other = millrace.jax.Iterator(service.address, dp_rank=0)
    other.set_state(state)
    assert other.get_state() == state and other.state_dict() == data.state_dict()
    next(other.loader)
    assert (other.loader.step, other.loader.microbatch) == (1, 1)
    data.close()
    other.close()


# ---- the real service ----


def lengths_of(loader):
    return [[s.length for s in row.segments] for row in loader.lineage]


@needs_binary
def test_packed_batches(tmp_path):
    spec = write_job(tmp_path, dp=1, format="megatron-thd", cp_slicing="none")
    with real_service(spec) as address, millrace.connect(address, dp_size=1) as loader:
        for _ in range(6):
            batch = next(loader)
            assert list(batch) == [
                "tokens", "position_ids", "labels", "loss_mask",
                "cu_seqlens", "cu_seqlens_padded", "max_seqlen",
            ]  # fmt: skip
            bounds, padded = batch["cu_seqlens"], batch["cu_seqlens_padded"]
            assert batch["max_seqlen"].tolist() == [max(np.diff(padded))]
            assert padded[-1] == batch["tokens"].size == 2 * 128
            # Megatron's own padding mask: what a segment has beyond its tokens.
            places = np.arange(padded[-1])
            segment = np.searchsorted(padded[1:], places, side="right")
            padding = places - padded[segment] >= np.diff(bounds)[segment]
            assert not batch["tokens"][padding].any() and not batch["loss_mask"][padding].any()
            assert not batch["labels"][padding].any() and not batch["position_ids"][padding].any()
            lengths = [n for row in lengths_of(loader) for n in row]
            assert [n for n in np.diff(bounds) if n] == lengths
            assert batch["loss_mask"].sum() == sum(n - 1 for n in lengths)


@needs_binary
def test_shared_rows(tmp_path):
    """Rows longer than sequence_length come to 2 or 4 of all dp x cp ranks, and join again."""
    split = {"rows": 1, "batch": ", context_split: 4", "longest": 500}
    spec = write_job(tmp_path, dp=2, cp=2, format="megatron-thd", **split)
    places = [{"dp": dp, "cp": cp, "pp": 0, "tp": 0} for dp in range(2) for cp in range(2)]
    with real_service(spec) as address, contextlib.ExitStack() as stack:
        loaders = [
            stack.enter_context(millrace.connect(address, dp_rank=p["dp"], cp_rank=p["cp"]))
            for p in places
        ]
        writers = [
            dump.Writer(str(tmp_path / "dump"), dump.where(loader, place))
            for loader, place in zip(loaders, places)
        ]
        widths = set()
        for number in range(3 * 2):
            for loader, writer in zip(loaders, writers):
                shared = loader.sharing()[number % 2]
                batch = next(loader)
                assert batch["local_cp_size"].tolist() == [shared]
                assert batch["tokens"].shape == (128,)
                assert batch["local_cp_size"].dtype == np.int32
                widths.add(int(batch["local_cp_size"][0]))
                assert batch["cu_seqlens_padded"][-1] == 128 * batch["local_cp_size"][0]
                writer.add(loader, batch)
        assert widths == {1, 2, 4}
        steps = list(digest.Reader(dump.read([str(tmp_path / "dump")]), "zigzag").digests())
        token = millrace.messages.ResumeToken.decode(loaders[0].state_dict()["token"])
    assert [step for step, _ in steps] == [1, 2, 3] and steps[-1][1] == token.digest


@needs_binary
def test_sums_of_shared_rows(tmp_path):
    """What the ranks that share rows count adds up to each document once, also after a resume."""
    split = {"rows": 1, "batch": ", context_split: 4", "longest": 500}
    spec = write_job(tmp_path, dp=2, cp=2, format="megatron-thd", **split)
    with real_service(spec) as address, contextlib.ExitStack() as stack:
        loaders = [
            stack.enter_context(millrace.connect(address, dp_rank=dp, cp_rank=cp))
            for dp in range(2) for cp in range(2)
        ]  # fmt: skip
        shared = set()

        def check(left):
            told, documents = [], {}
            for loader in loaders:
                shared.update(loader.sharing())
                step = millrace.megatron.wrap_data_iterator(loader, lambda n: told.append(n) or n)
                assert step.num_microbatches == left
                for _ in range(left):
                    next(loader)
                    for row in loader.lineage:
                        documents.update(
                            {(s.source, s.seq, s.index): s.length for s in row.segments}
                        )
            assert len(told) == len(loaders)
            assert sum(n for n, _ in told) == sum(documents.values())
            assert sum(n for _, n in told) == sum(n * n for n in documents.values())

        for _ in range(4):
            check(2)
        for loader in loaders:  # in the middle of a step
            next(loader)
        check(1)
        assert shared == {1, 2, 4}


@needs_binary
def test_jax_batches(tmp_path):
    spec = write_job(tmp_path, dp=1, format="jax", pp=2)
    options = {"dp_size": 1, "pp_size": 2}
    with (
        real_service(spec) as address,
        millrace.connect(address, pp_rank=0, **options) as first,
        millrace.connect(address, pp_rank=1, **options) as last,
    ):
        for _ in range(6):
            batch, other = next(first), next(last)
            assert all(v.dtype == np.int32 and v.shape == (2, 128) for v in batch.values())
            for name, value in batch.items():
                np.testing.assert_array_equal(value, other[name])
            segments, targets = batch["inputs_segmentation"], batch["targets_segmentation"]
            for line, row in zip(segments, lengths_of(first)):
                assert np.bincount(line)[1:].tolist() == row
            told = targets > 0
            assert (targets[told] == segments[told]).all()
            following = np.roll(batch["inputs"], -1, axis=1)
            assert (batch["targets"][told] == following[told]).all()
