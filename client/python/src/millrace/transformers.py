"""Batches for Hugging Face Transformers (``output.format: hf``), and for its Trainer.

    trainer = transformers.Trainer(model=model, args=args)
    millrace.transformers.attach(trainer, "planner:7070")
    trainer.train(resume_from_checkpoint=True)

In a loop of your own:

    millrace.transformers.check(model)  # once: are documents apart in this model?
    for batch in data:
        loss = model(**batch).loss

Trainer fetches ahead of what it trains on. The state that it saves here, in
trainer_state.json, is that of the last batch trained on.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import numpy as np
import torch

from millrace import vision
from millrace.config import check_choice
from millrace.errors import UserError
from millrace.feed import Feed, feed_of
from millrace.receive import VISION
from millrace.state import from_json, to_json
from millrace.torch import Batch

__all__ = ["attach", "check", "qwen2_vl"]

KEY = "MillraceData"  # of the state in trainer_state.json: the callback's class

# What check() gives a model: without some of them it may not keep documents apart.
INPUTS = (
    "input_ids", "position_ids", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k",
)  # fmt: skip


def attach(trainer: Any, source: Any = None, **options: Any) -> Feed:
    """Has trainer train on Millrace's batches, and save and load their state.

    source: a millrace.torch.Dataset, a DataLoader of one, a Feed, or an address; options are those
        of millrace.connect(), with dp_rank and dp_size by default the process_index and
        world_size of trainer's arguments. Its tensors, if given, have all but labels.

    Attached again, the trainer goes on with the new data only. With a Dataset that was attached
    before, to any trainer, training begins only where a checkpoint is resumed from or all that was
    fetched was trained on; the Feed that this returned then, in its place, goes on.

    Sets ``ignore_data_skip``, as there is nothing to skip after a resume. The model is
    checked when training begins; see check(). A checkpoint without the data's state is
    refused.
    """
    if trainer.args.n_gpu > 1:
        raise UserError(
            f"one process with {trainer.args.n_gpu} GPUs would split each batch over them "
            "(DataParallel): start a process for each with torchrun"
        )
    rank, size = trainer.args.process_index, trainer.args.world_size
    feed = feed_of(source, rank, size, options)
    check_choice(feed.dataset.loader.tensors, INPUTS, "models keep documents apart by these")
    for callback in list(trainer.callback_handler.callbacks):
        if type(callback).__name__ == KEY:  # of data that these take the place of
            trainer.remove_callback(callback)
    trainer.args.ignore_data_skip = True
    trainer.get_train_dataloader = lambda: feed
    trainer.add_callback(_callback(trainer, feed))
    return feed


def _callback(trainer: Any, feed: Feed) -> Any:
    """Returns what Trainer calls. It may make another of the class, without arguments.

    A class lives until cycles are collected; trainer and feed, which is its, are not to.
    """
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState

    owner: Callable[[], Any] = weakref.ref(trainer)
    fed: Callable[[], Any] = weakref.ref(feed)

    class MillraceData(TrainerCallback, ExportableState):
        def state(self) -> dict[str, Any]:
            return {"args": {}, "attributes": {"data": to_json(fed().state_dict())}}

        def on_train_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            if state.global_step:
                _load(fed(), state)
            if not args.ignore_data_skip:
                raise UserError(
                    "ignore_data_skip was set to False after attach(): Trainer would pass over "
                    "batches that the data's state is behind already. Leave it True"
                )
            check(owner().model_wrapped)
            _check_inputs(fed())

        def on_substep_end(self, *_: Any, **__: Any) -> None:
            fed().trained()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            fed().trained()

    return MillraceData()


def _load(feed: Feed, state: Any) -> None:
    """Has the feed go on where the checkpoint was saved.

    Of a checkpoint without the data's state it goes on where the user had it go on by hand.
    """
    saved = state.stateful_callbacks.get(KEY)
    saved = saved[-1] if isinstance(saved, list) and saved else saved
    data = (saved or {}).get("attributes", {}).get("data")
    if data is not None:
        feed.load_state_dict(from_json(data))
    elif not feed.loaded:
        raise UserError(
            f"the checkpoint of step {state.global_step} has no state of the data: it was saved "
            "without millrace.transformers.attach(). Load the model's weights alone to begin "
            "the data again"
        )


def _check_inputs(feed: Feed) -> None:
    """Raises UserError for batches that no model of Transformers takes."""
    batch = next(feed, None)  # the trainer's own iteration begins with it again
    if batch is not None and not {"input_ids", "inputs_embeds"} & set(batch):
        raise UserError(
            f"the batches have {', '.join(batch)}, where models of Transformers take input_ids: "
            "write output: {format: hf} into the job spec"
        )


# ---- documents of a line ----

LENGTHS = (5, 9, 7)  # of the documents of the line that check() makes

# Tokens of the first document of a second line, if the model has as many positions. An ALiBi that
# counts along the line in bfloat16 is exact up to 256, and off by 4 of 8 at this one.
LONG = 2000


def check(model: Any) -> None:
    """Raises UserError if the documents of a packed line are not apart in this model.

    The model gets a short line of three documents as a job of format ``hf`` delivers it.
    What it makes of the last two must not change with the first one's tokens, and must be what
    it makes of each document alone; nor must it change behind a long document. That depends on
    the model, on the attention implementation, and on their versions; so it is asked and not
    listed. A few short passes and one of 2000 tokens, without gradients; where parameters are
    sharded, all ranks call it.
    """
    config = _text_config(model)
    place = next(model.parameters())
    draw = torch.Generator().manual_seed(0)
    top = min(int(config.vocab_size), 1000)
    ids = torch.randint(1, top, (1, sum(LENGTHS)), generator=draw)
    other = ids.clone()
    other[:, : LENGTHS[0]] = 1 + ids[:, : LENGTHS[0]] % (top - 1)
    with _still(model):
        told = _logits(model, ids, LENGTHS, place.device)
        changed = _logits(model, other, LENGTHS, place.device)
        parts = [
            _logits(model, part, (part.shape[1],), place.device)
            for part in ids.split(list(LENGTHS), dim=1)
        ]
    alone = torch.cat(parts, dim=1)
    room = 64 * torch.finfo(place.dtype).eps * float(told.abs().max())
    behind = slice(LENGTHS[0], None)
    leak = float((told - changed)[:, behind].abs().max())
    apart = float((told - alone).abs().max())
    if not max(leak, apart) <= room:
        raise _refusal(
            model,
            f"logits of one change by {leak:.2g} with another's tokens, and by {apart:.2g} with "
            "the others left out",
        )
    long = min(LONG, getattr(config, "max_position_embeddings", None) or LONG)
    first = torch.randint(1, top, (1, long), generator=draw)
    last = LENGTHS[-1]
    line = torch.cat([first, ids[:, -last:]], dim=1)
    with _still(model):
        far = _logits(model, line, (long, last), place.device, last)
    moved = float((far - alone[:, -last:]).abs().max())
    if not moved <= room:
        raise _refusal(
            model, f"logits of one change by {moved:.2g} behind another of {long} tokens"
        )


def _refusal(model: Any, what: str) -> UserError:
    return UserError(
        f"{type(model).__name__} with {_text_config(model)._attn_implementation} attention does "
        f"not keep the documents of a packed line apart: {what}. Try "
        "attn_implementation='flash_attention_2' or 'sdpa', another version of Transformers, "
        "or one document a row: batch.packing: false with microbatch_size: 1"
    )


def _text_config(model: Any) -> Any:
    config = getattr(model, "config", None) or getattr(model, "module", model).config
    return config.get_text_config()


@contextlib.contextmanager
def _still(model: Any) -> Iterator[None]:
    """Without dropout and gradients."""
    training = [(module, module.training) for module in model.modules()]  # the model first
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training[0][1])
        for module, before in training:
            module.training = before


def _logits(
    model: Any, ids: torch.Tensor, lengths: tuple[int, ...], device: Any, last: int = 0
) -> torch.Tensor:
    """Returns what the model makes of a line as the service delivers it.

    last: of that number of tokens at its end; 0: of all.
    """
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    bounds = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    line = {"input_ids": ids, "position_ids": positions}
    line.update({"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds})
    if _mrope(_text_config(model)):
        line["position_ids"] = positions.expand(4, 1, -1)
    moved = {key: value.to(device) for key, value in line.items()}
    longest = max(lengths)
    forward = getattr(model, "module", model).forward
    keep = {"logits_to_keep": last} if "logits_to_keep" in signature(forward).parameters else {}
    made = model(**moved, max_length_q=longest, max_length_k=longest, use_cache=False, **keep)
    return made.logits[:, -last:].float()


def _mrope(config: Any) -> bool:
    """Says whether the model has positions of time, height and width (Qwen2-VL and after)."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    return "mrope_section" in (rope or {})


# ---- images ----


def qwen2_vl(batch: Batch, mean: Any, std: Any, temporal: int = 2) -> Batch:
    """Returns a batch of a job with images as Qwen2-VL and Qwen2.5-VL take it.

    ``position_ids`` becomes [4, 1, tokens], of the text, time, height and width;
    ``pixel_values`` becomes float32, see millrace.vision.normalize() for mean, std and
    temporal.

    Raises UserError unless this rank has the line whole and encodes the images of its own
    rows: a job whose strategy deals images to other ranks, or that cuts lines for context
    parallelism, needs a model that exchanges them.
    """
    source = batch.images.get("source")
    if source is None:
        raise UserError(
            "the batch has no image.source: give one of a job with images, "
            "of the first pipeline stage"
        )
    for name in ("position_ids", "cu_seq_lens_q", *VISION):
        if name not in batch:
            raise UserError(
                f"the batch has no {name}: write output: {{format: hf}} into the job spec, and "
                "leave tensors out of connect(), or add it there"
            )
    bounds = batch["cu_seq_lens_q"].numpy()
    own = [[batch.rank, number] for number in range(len(batch["image_grid_thw"]))]
    if source[:, :2].tolist() != own:
        raise UserError(
            f"the images of step {batch.step}, microbatch {batch.microbatch} are encoded by ranks "
            f"{sorted({int(n) for n in source[:, 0]} | {batch.rank})}, this one is {batch.rank}: "
            "leave the graph of images out of the job's strategy"
        )
    if batch["position_ids"].shape[1] != bounds[-1]:
        raise UserError("the line is cut for context parallelism: write output.cp_slicing: none")
    positions = vision.mrope(batch["position_ids"].numpy(), bounds, batch.documents, source)
    pixels = vision.normalize(np.asarray(batch["pixel_values"]), mean, std, temporal)
    made = {"position_ids": positions, "pixel_values": pixels}
    return batch.replaced({key: torch.from_numpy(value) for key, value in made.items()})
