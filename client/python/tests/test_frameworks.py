"""What today's frameworks make of the real service's batches.

Each test needs its framework and is skipped without it: jax, grain, transformers,
torchtitan. The lane that installs them is ``make py-frameworks``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import json
import math
import pickle
import types
import weakref

import numpy as np
import pytest
from processes import needs_binary, real_service, write_job

import millrace
import millrace.jax
import millrace.torchtitan

pytestmark = needs_binary

VOCABULARY, ROW, BATCHES = 257, 128, 3


def lengths_of(loader):
    return [[segment.length for segment in row.segments] for row in loader.lineage]


# ---- JAX ----


def jax_losses(jax):
    """Returns f(tokens, positions, segments, targets) of a layer of attention: losses by place."""
    jnp = jax.numpy
    draw = np.random.default_rng(0)
    shapes = [(VOCABULARY, 16), (ROW, 16), (16, 48), (16, VOCABULARY)]
    table, places, attention, head = (jnp.asarray(draw.normal(size=s)) for s in shapes)

    def losses(tokens, positions, segments, targets):
        x = table[tokens] + places[positions]
        q, k, v = jnp.split(x @ attention, 3, axis=-1)
        seen = jnp.tril(segments[:, :, None] == segments[:, None, :])
        scores = jnp.where(seen, jnp.einsum("bqd,bkd->bqk", q, k) / 4, -1e30)
        logits = (x + jax.nn.softmax(scores) @ v) @ head
        told = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        return jax.nn.logsumexp(logits, axis=-1) - told

    return jax.jit(losses)


def test_jax_loss_of_packed_rows(tmp_path):
    jax = pytest.importorskip("jax", reason="jax is not installed: pip install jax")
    losses = jax_losses(jax)
    spec = write_job(tmp_path, dp=1, format="jax")
    with real_service(spec) as address:
        data = millrace.jax.Iterator(address, dp_size=1)
        for batch in itertools.islice(data, BATCHES):
            assert all(isinstance(value, jax.Array) for value in batch.values())
            names = ("inputs", "inputs_position", "inputs_segmentation", "targets")
            # MaxText's rule: the loss counts where targets_segmentation is not 0.
            weights = batch["targets_segmentation"] != 0
            got = float((losses(*(batch[name] for name in names)) * weights).sum())
            want, labels = 0.0, 0
            for row, lengths in zip(np.asarray(batch["inputs"]), lengths_of(data.loader)):
                for document in np.split(row, np.cumsum(lengths))[:-1]:
                    alone = document[None, :-1]
                    at = np.arange(alone.size)[None]
                    want += float(losses(alone, at, at * 0, document[None, 1:]).sum())
                    labels += alone.size
            assert labels == int(weights.sum()) > 100
            assert math.isclose(got, want, rel_tol=1e-4)
        data.close()


def test_jax_states(serve):
    """As get_state() and state_dict() return them; anything else is a UserError."""
    with contextlib.closing(millrace.jax.Iterator(serve().address, dp_rank=0)) as data:
        next(data.loader)
        saved = data.get_state()
        values = json.loads(saved)
        for state in (saved, saved.decode(), bytearray(saved), data.state_dict()):
            data.set_state(state)
            assert data.get_state() == saved
        damaged = [json.dumps({**values, "token": t}).encode() for t in ("%%%", "abc", None, 7)]
        for state in (b"x", b"{}", b"[1]", b"\xff", b"null", None, 5, *damaged):
            with pytest.raises(millrace.UserError, match="is no state as JSON"):
                data.set_state(state)


def test_jax_sharding(tmp_path):
    jax = pytest.importorskip("jax", reason="jax is not installed: pip install jax")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    spec = write_job(tmp_path, dp=1, format="jax")
    with real_service(spec) as address:
        data = millrace.jax.Iterator(address, dp_size=1, sharding=sharding)
        batch = next(data)
        assert all(v.sharding == sharding and v.shape == (2, ROW) for v in batch.values())
        data.close()


def test_grain_checkpoint(tmp_path):
    """Grain's own handler saves the iterator's state and restores it."""
    reason = "grain is not installed: pip install grain jax"
    checkpoint = pytest.importorskip("grain.checkpoint", reason=reason)
    pytest.importorskip("jax", reason=reason)
    handler = checkpoint.CheckpointHandler()
    spec = write_job(tmp_path / "job", dp=1, format="jax")
    with real_service(spec) as address:
        data = millrace.jax.Iterator(address, dp_size=1)
        for _ in range(5):
            next(data)
        handler.save(tmp_path, item=data)
        want = next(data)
        data.close()
        resumed = millrace.jax.Iterator(address, dp_size=1)
        got = next(handler.restore(tmp_path, item=resumed))
        for name, value in want.items():
            np.testing.assert_array_equal(value, got[name])
        resumed.close()


# ---- Hugging Face Transformers ----


def llama():
    reason = "transformers and torch are not installed: pip install transformers torch"
    torch = pytest.importorskip("torch", reason=reason)
    transformers = pytest.importorskip("transformers", reason=reason)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2 * ROW,
    )  # fmt: skip
    return torch, transformers.LlamaForCausalLM(config).double()


@pytest.mark.parametrize("cp", [1, 2])
def test_llama_loss_of_a_packed_line(tmp_path, cp):
    """model(**batch) separates documents by their positions; with CP it uses shift_labels."""
    torch, model = llama()
    spec = write_job(tmp_path, dp=1, cp=cp, format="hf", cp_slicing="none")
    options = {"dp_size": 1, "cp_rank": 0, "cp_size": cp}
    with real_service(spec) as address, millrace.connect(address, **options) as loader:
        for _ in range(1 if cp > 1 else BATCHES):
            arrays = next(loader)
            batch = {k: v if isinstance(v, int) else torch.from_numpy(v) for k, v in arrays.items()}
            assert ("shift_labels" in batch) == (cp > 1)
            with torch.no_grad():
                got = model(**batch, use_cache=False).loss
                lengths = [n for row in lengths_of(loader) for n in row]
                documents = batch["input_ids"][0, : sum(lengths)].split(lengths)
                alone = [model(d[None], labels=d[None]).loss * (len(d) - 1) for d in documents]
            torch.testing.assert_close(got, sum(alone) / (sum(lengths) - len(lengths)))


def test_trainer_wants_its_own_format(tmp_path):
    _, model = llama()
    reason = "accelerate is not installed: pip install accelerate"
    pytest.importorskip("accelerate", reason=reason)
    import transformers

    import millrace.transformers

    args = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=2, use_cpu=True, report_to=[]
    )
    made = transformers.Trainer(model=model, args=args)
    with real_service(write_job(tmp_path, dp=1, format="megatron")) as address:
        feed = millrace.transformers.attach(made, address, timeout=60)
        with pytest.raises(millrace.UserError, match="format: hf"):
            made.train()
        feed.close()


def test_trainer_that_other_data_are_attached_to(tmp_path):
    """It trains on those, and no longer tells the first of what it does."""
    _, model = llama()
    pytest.importorskip("accelerate", reason="accelerate is not installed: pip install accelerate")
    import transformers

    import millrace.transformers

    args = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=3, use_cpu=True, report_to=[], save_steps=100
    )
    made = transformers.Trainer(model=model.float(), args=args)
    with real_service(write_job(tmp_path / "job", dp=1, format="hf")) as address:
        first = millrace.transformers.attach(made, address, timeout=60)
        made.train()
        first.close()
    with real_service(write_job(tmp_path / "job2", dp=1, format="hf")) as address:
        second = millrace.transformers.attach(made, address, timeout=60)
        made.train()
        assert (first.count, second.count) == (3, 3)
        second.close()


def test_a_dropped_trainer_leaves_no_loader(serve, tmp_path):
    """It is gone with its data at once, and not when garbage is collected."""
    _, model = llama()
    pytest.importorskip("accelerate", reason="accelerate is not installed: pip install accelerate")
    import transformers

    import millrace.transformers

    args = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=3, use_cpu=True, report_to=[]
    )
    gc.collect()
    gc.disable()
    try:
        loader = millrace.connect(serve().address, dp_rank=0)
        gone = weakref.ref(loader)
        made = transformers.Trainer(model=model, args=args)
        millrace.transformers.attach(made, millrace.torch.Dataset(loader))
        del made, loader
        assert gone() is None
    finally:
        gc.enable()


# ---- Lightning and Accelerate ----


def test_lightning_tells_the_feed_of_the_data_it_fits(tmp_path):
    """A trainer that fits other data, and then these again."""
    pytest.importorskip("lightning", reason="lightning is not installed: pip install lightning")
    import millrace.lightning

    trainer = types.SimpleNamespace(callbacks=["of the user"], global_rank=0, world_size=1)
    with real_service(write_job(tmp_path, dp=1, format="hf")) as address:
        both = [millrace.lightning.DataModule(address) for _ in range(2)]
        for data in (*both, both[0]):
            data.trainer = trainer
            data.setup("fit")
            data.setup("fit")
            told, other = trainer.callbacks
            assert other == "of the user" and told._feed is data.feed
        batch = next(iter(both[0].feed))
        module = types.SimpleNamespace(training_step=lambda batch: None)
        trainer.callbacks[0].on_train_batch_end(trainer, module, None, batch, 0)
        assert both[0].feed.state_dict() == batch.state_dict()
        for data in both:
            data.feed.close()


def place(batch):
    return 4 * batch.step + batch.microbatch


def fit(address, folder, resume=None, count=None, each=0, look=None, **options):
    """Fits a model of one number by Lightning; returns the numbers of the batches trained on.

    Each epoch leaves a checkpoint. each: batches that the training step takes itself.
    look: the batch at which the step looks at one more.
    """
    from lightning import pytorch as pl

    import millrace.lightning

    torch = pytest.importorskip("torch")
    places = []

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def training_step(self, batch):
            places.append(place(batch))
            if places[-1] == look:
                next(iter(self.trainer.train_dataloader))
            return self.weight * 2

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Taking(Module):
        def training_step(self, dataloader_iter):
            places.extend([place(next(dataloader_iter)[0]) for _ in range(each)])
            return self.weight * 2

    save = pl.callbacks.ModelCheckpoint(folder, "{epoch}", save_top_k=-1)
    trainer = pl.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, callbacks=[save],
        limit_train_batches=count, **options,
    )  # fmt: skip
    data = millrace.lightning.DataModule(address, timeout=30)
    module = Taking() if each else Module()
    trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=False)
    return places


def test_lightning_resumes_behind_an_epoch(tmp_path):
    """By the checkpoint of the end of an epoch; one without the data's state is refused."""
    pytest.importorskip("lightning", reason="lightning is not installed: pip install lightning")
    import torch

    saved = tmp_path / "saved"
    with real_service(write_job(tmp_path / "job", dp=1, format="hf")) as address:
        assert fit(address, saved, count=5, max_epochs=2) == list(range(10))
    for epoch, more in (("epoch=1", 10), ("epoch=0", 5)):
        with real_service(write_job(tmp_path / epoch, dp=1, format="hf")) as address:
            path = saved / f"{epoch}.ckpt"
            places = fit(address, tmp_path / "again", path, count=5, max_epochs=3)
            assert places == list(range(more, 15))
    checkpoint = torch.load(path, weights_only=False)
    del checkpoint["millrace"]
    checkpoint["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)
    torch.save(checkpoint, tmp_path / "foreign.ckpt")
    refused = pytest.raises(millrace.UserError, match="no state of the data")
    with real_service(write_job(tmp_path / "job2", dp=1, format="hf")) as address, refused:
        fit(address, tmp_path / "never", tmp_path / "foreign.ckpt", count=5, max_epochs=3)


def test_lightning_ends_with_the_data(tmp_path):
    pytest.importorskip("lightning", reason="lightning is not installed: pip install lightning")
    spec = write_job(tmp_path / "job", dp=1, format="hf")
    spec.write_text(spec.read_text().replace("mix:", "mix:\n  epochs: 1"))
    with real_service(spec) as address, millrace.connect(address, dp_rank=0, dp_size=1) as loader:
        count = sum(1 for _ in loader)
    with real_service(spec) as address:
        assert fit(address, tmp_path / "saved", max_epochs=-1) == list(range(count))
    with real_service(spec) as address:
        assert fit(address, tmp_path / "epochs", max_epochs=9, min_epochs=3) == list(range(count))
    refused = pytest.raises(millrace.UserError, match=f"{count} batches.*min_steps is {count + 1}")
    with real_service(spec) as address, refused:
        fit(address, tmp_path / "steps", max_epochs=9, min_steps=count + 1)
    each = next(n for n in range(2, count) if count % n)  # the last ones are too few
    with real_service(spec) as address:
        places = fit(address, tmp_path / "each", each=each, max_epochs=9)
        assert places == list(range(count // each * each))


def test_lightning_steps_that_take_several_batches(tmp_path):
    """All that a step took was trained on: at a resume, and in the next epoch."""
    pytest.importorskip("lightning", reason="lightning is not installed: pip install lightning")
    with real_service(write_job(tmp_path / "job", dp=1, format="hf")) as address:
        places = fit(address, tmp_path / "saved", count=4, each=2, max_epochs=2)
        assert places == list(range(8))
    with real_service(write_job(tmp_path / "job2", dp=1, format="hf")) as address:
        path = tmp_path / "saved" / "epoch=1.ckpt"
        places = fit(address, tmp_path / "again", path, count=4, each=2, max_epochs=3)
        assert places == list(range(8, 12))


def test_a_look_at_a_batch_ends_lightning(tmp_path):
    """It would train on batches twice."""
    pytest.importorskip("lightning", reason="lightning is not installed: pip install lightning")
    refused = pytest.raises(millrace.UserError, match="another iteration of the same data")
    with real_service(write_job(tmp_path / "job", dp=1, format="hf")) as address, refused:
        fit(address, tmp_path / "saved", max_steps=8, look=3)


def test_accelerate_goes_back_within_an_iteration(tmp_path):
    """What it has fetched ahead is of before the state that was loaded."""
    reason = "accelerate is not installed: pip install accelerate"
    accelerator = pytest.importorskip("accelerate", reason=reason).Accelerator(cpu=True)
    import millrace.accelerate

    with real_service(write_job(tmp_path, dp=1, format="hf")) as address:
        data = millrace.accelerate.prepare(accelerator, address)
        places, state = [], None
        for batch in data:
            places.append(4 * batch.step + batch.microbatch)
            if len(places) == 3:
                state = data.state_dict()
            if len(places) == 6:
                data.load_state_dict(state)
            if len(places) == 9:
                break
        assert places == [0, 1, 2, 3, 4, 5, 3, 4, 5]
        batch = next(iter(data))
        assert 4 * batch.step + batch.microbatch == 6
        data.close()


def test_a_look_at_a_batch_ends_an_accelerate_iterator(tmp_path):
    """It would pass over batches."""
    reason = "accelerate is not installed: pip install accelerate"
    accelerator = pytest.importorskip("accelerate", reason=reason).Accelerator(cpu=True)
    import millrace.accelerate

    with real_service(write_job(tmp_path, dp=1, format="hf")) as address:
        data = millrace.accelerate.prepare(accelerator, address)
        places, refused = [], pytest.raises(millrace.UserError, match="another iteration")
        with refused:
            for batch in data:
                places.append(place(batch))
                if len(places) == 3:
                    more = iter(data)
                    places.append(place(next(more)))
        assert places == [0, 1, 2, 3] and place(next(more)) == 4
        assert data.state_dict()["step"] == 1
        data.close()


def test_an_error_ends_no_accelerate_iterator(tmp_path):
    reason = "accelerate is not installed: pip install accelerate"
    accelerator = pytest.importorskip("accelerate", reason=reason).Accelerator(cpu=True)
    from test_torch import failing

    import millrace.accelerate

    with real_service(write_job(tmp_path, dp=1, format="hf")) as address:
        data = millrace.accelerate.prepare(accelerator, address)
        batches, places = iter(data), []
        with failing("__next__", 4), pytest.raises(millrace.LostError):
            for batch in batches:
                places.append((batch.step, batch.microbatch))
        for _ in range(4):
            batch = next(batches)
            places.append((batch.step, batch.microbatch))
        assert places == [divmod(number, 4) for number in range(len(places))]
        assert data.state_dict() == batch.state_dict()
        data.close()


# ---- torchtitan ----


def test_torchtitan_options():
    """The loader's options may be given on torchtitan's command line."""
    reason = "torchtitan is not installed: pip install torchtitan"
    loaders = pytest.importorskip("torchtitan.components.dataloader", reason=reason)
    tyro = pytest.importorskip("tyro", reason=reason)
    made = millrace.torchtitan.DataLoader.Config(address="a:1", options={"cp_rank": 0})
    assert isinstance(made, loaders.BaseDataLoader.Config)
    assert pickle.loads(pickle.dumps(made)) == made

    @dataclasses.dataclass
    class Job:
        dataloader: loaders.BaseDataLoader.Config

    Job.__annotations__["dataloader"] = loaders.BaseDataLoader.Config
    job = tyro.cli(Job, default=Job(made), args=["--dataloader.address", "b:2"])
    assert (job.dataloader.address, job.dataloader.options) == ("b:2", {"cp_rank": 0})
    with pytest.raises(millrace.UserError, match="leave it out"):
        dataclasses.replace(made, dataset="c4").build(dp_rank=0, dp_world_size=1)


def test_torchtitan_masks(tmp_path):
    """torchtitan's own functions find the documents in the positions."""
    reason = "torchtitan is not installed: pip install torchtitan"
    attention = pytest.importorskip("torchtitan.models.common.attention", reason=reason)
    spec = write_job(tmp_path, dp=1, format="torchtitan", cp_slicing="none")
    with real_service(spec) as address:
        config = millrace.torchtitan.DataLoader.Config(address)
        data = config.build(
            dp_rank=0, dp_world_size=1, tokenizer=None, seq_len=ROW, local_batch_size=2
        )
        for inputs, labels in itertools.islice(data, BATCHES):
            ends, at = [0], 0
            for lengths in lengths_of(data.loader):
                ends += [at + int(end) for end in np.cumsum(lengths)]
                at += ROW
                ends += [at] * (ends[-1] < at)
            found = attention.create_varlen_metadata_for_document(inputs["positions"])
            assert found.cu_seq_q.tolist() == ends
            mask = attention.get_document_mask_mod(inputs["positions"])
            told = (labels[:, :-1] != -100).nonzero().T
            assert mask(told[0], 0, told[1], told[1] + 1).all()
            assert (labels[:, :-1][tuple(told)] == inputs["input"][:, 1:][tuple(told)]).all()
        data.close()
