"""A trainer in a process of its own, for tests that kill it: ``python trainers.py KIND ...``.

Whatever it trains on, it first writes to a file, a line for each microbatch. It saves a
checkpoint after every third (or sixth) of them, named after how many there were, and
resumes after the one that it is given.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib

import torch
import transformers

import millrace.torch

VOCABULARY, EVERY = 300, 3


def line_of(batch):
    """Returns what is written about a microbatch: a digest of all its tokens."""
    return hashlib.sha256(batch["input_ids"].cpu().numpy().tobytes()).hexdigest()


class Model(transformers.LlamaForCausalLM):
    """A tiny model that writes down what it is trained on."""

    log = None

    def forward(self, **batch):
        if self.training:
            self.log.write(line_of(batch) + "\n")
            self.log.flush()
        return super().forward(**batch)


def make_model(options):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    model = Model(config)
    Model.log = open(options.log, "a")  # noqa: SIM115
    return model


def data_loader(options, workers=0, kind=torch.utils.data.DataLoader):
    """Returns a DataLoader of the rank's dataset, with a worker process or without."""
    data = millrace.torch.Dataset(options.address, dp_rank=0, dp_size=1, timeout=60)
    context = {"multiprocessing_context": "spawn"} if workers else {}
    keep = millrace.torch.keep
    return kind(data, batch_size=None, collate_fn=keep, num_workers=workers, **context)


def plain(options, workers=1, stateful=False):
    """A loop of one's own. The worker is ahead; what is saved is the batch's state."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    model = make_model(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = data_loader(
        options, workers, StatefulDataLoader if stateful else torch.utils.data.DataLoader
    )
    done = 0
    if options.resume:
        saved = torch.load(options.resume)
        model.load_state_dict(saved["model"])
        (loader if stateful else loader.dataset).load_state_dict(saved["data"])
        done = saved["done"]
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        if done % EVERY == 0:
            state = loader.state_dict() if stateful else batch.state_dict()
            saved = {"model": model.state_dict(), "data": state, "done": done}
            torch.save(saved, options.folder / str(done))
        if done == options.batches:
            break


def stateful(options):
    """The same with the loader of torchdata, where nothing fetches ahead of this loop."""
    plain(options, stateful=True)


def lightning(options, kind=torch.utils.data.DataLoader, workers=0):
    from lightning import pytorch as pl

    import millrace.lightning

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = make_model(options)

        def training_step(self, batch):
            return self.model(**batch).loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), lr=0.01)

    save = pl.callbacks.ModelCheckpoint(
        options.folder, "{step}", every_n_train_steps=EVERY, save_top_k=-1,
        auto_insert_metric_name=False,
    )  # fmt: skip
    trainer = pl.Trainer(
        max_steps=options.batches, accelerator="cpu", callbacks=[save], logger=False,
        enable_progress_bar=False, precision=options.precision, limit_train_batches=options.epoch,
        max_epochs=-1,
    )  # fmt: skip
    data = millrace.lightning.DataModule(data_loader(options, workers, kind))
    # What a checkpoint of Lightning's own loops holds is more than weights.
    trainer.fit(Module(), datamodule=data, ckpt_path=options.resume, weights_only=False)


def lightning_stateful(options):
    from torchdata.stateful_dataloader import StatefulDataLoader

    lightning(options, StatefulDataLoader, workers=1)


def trainer(options):
    """Transformers' Trainer, which accumulates the gradients of two batches."""
    import millrace.transformers

    args = transformers.TrainingArguments(
        output_dir=str(options.folder), max_steps=options.batches // 2, save_steps=EVERY,
        gradient_accumulation_steps=2, use_cpu=True, report_to=[], disable_tqdm=True,
        save_strategy="steps", logging_strategy="no",
    )  # fmt: skip
    made = transformers.Trainer(model=make_model(options), args=args)
    millrace.transformers.attach(made, options.address, timeout=60)
    made.train(resume_from_checkpoint=options.resume)


def accelerate(options):
    """Accelerate, with as many processes as there are: each trains on batches of its own."""
    from accelerate import Accelerator

    import millrace.accelerate

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    data = millrace.accelerate.prepare(accelerator, options.address, timeout=60)
    options.log = f"{options.log}.{accelerator.process_index}"
    model = make_model(options)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    done = 0
    if options.resume:
        accelerator.load_state(options.resume)
        done = int(pathlib.Path(options.resume).name)
    for batch in data:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            optimizer.step()
            optimizer.zero_grad()
        done += 1
        if done % EVERY == 0:
            accelerator.save_state(options.folder / str(done))
        if done == options.batches:
            break
    accelerator.end_training()


KINDS = [plain, stateful, lightning, lightning_stateful, trainer, accelerate]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=[kind.__name__ for kind in KINDS])
    parser.add_argument("address")
    parser.add_argument("folder", type=pathlib.Path, help="of the checkpoints")
    parser.add_argument("log", help="of what was trained on")
    parser.add_argument("--batches", type=int, default=1 << 20, help="batches to train on in all")
    parser.add_argument("--resume", help="a checkpoint")
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--epoch", type=int, default=None, help="batches of Lightning's epoch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    next(kind for kind in KINDS if kind.__name__ == options.kind)(options)


if __name__ == "__main__":
    main()
