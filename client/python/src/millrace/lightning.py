"""Batches for Lightning, and their state in its checkpoints.

    data = millrace.lightning.DataModule("planner:7070")
    trainer.fit(model, datamodule=data, ckpt_path="last")

Lightning fetches one batch ahead. The state that this saves is that of the last batch
trained on, so that a resume trains on each batch once. A ``training_step(self, dataloader_iter)``
takes as many batches as it likes, and has trained on all of them when it returns. It is made for
both packages, ``lightning`` and ``pytorch_lightning``.
"""

from __future__ import annotations

import inspect
import logging
import sys
from typing import Any

try:
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        raise ImportError("the process has the other package already")
    from lightning import pytorch as lightning
except ImportError:
    import pytorch_lightning as lightning

from millrace.errors import UserError
from millrace.feed import Feed, feed_of

__all__ = ["DataModule"]

LOG = logging.getLogger("millrace")

KEY = "millrace"  # of the state in a checkpoint


class _Trained(lightning.Callback):
    """Tells the feed what was trained on, before anybody can save a checkpoint of it.

    And keeps its state there: of a DataModule, Lightning asks no hook for that.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._before = 0  # batches trained on before this epoch

    def on_train_epoch_start(self, *_: Any, **__: Any) -> None:
        self._before = self._feed.count

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, *_: Any, **__: Any
    ) -> None:
        if _takes_iterator(module):  # nothing is fetched ahead
            self._feed.trained_all()
        else:
            self._feed.trained(batch)

    def on_train_epoch_end(self, trainer: Any, module: Any, *_: Any, **__: Any) -> None:
        feed = self._feed
        idle = feed.count == self._before
        # A step that takes several batches, and got too few, never trains on those.
        stuck = idle and feed.exhausted and _takes_iterator(module)
        if not feed.ended and not stuck:
            return
        if idle and (trainer.min_steps or 0) > trainer.global_step:
            raise UserError(
                f"the data is at its end after {feed.count} batches of this process, at "
                f"global_step {trainer.global_step}, and min_steps is {trainer.min_steps}: it "
                f"cannot be reached. Set min_steps to {trainer.global_step} at most, or give the "
                "job more epochs (mix.epochs)"
            )
        if not trainer.should_stop:
            LOG.info("the data is at its end, and with it the training")
            trainer.should_stop = True  # more epochs would have no batch

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint[KEY] = self._feed.state_dict()

    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn != "fit":  # nothing is trained
            return
        state = checkpoint.get(KEY, _of_loop(checkpoint))
        if state is None:
            raise UserError(
                "the checkpoint has no state of the data: it was saved without "
                "millrace.lightning.DataModule. Load a state with data.feed.load_state_dict(), or "
                "load the model's weights alone to begin the data again"
            )
        self._feed.load_state_dict(state)


def _takes_iterator(module: Any) -> bool:
    """Says whether the training step is given the iterator and not a batch: by this name."""
    return "dataloader_iter" in inspect.signature(module.training_step).parameters


def _of_loop(checkpoint: dict[str, Any]) -> Any:
    """Returns the state as Lightning's own loop keeps it, in the middle of an epoch; or None."""
    loop = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {})
    states = loop.get("combined_loader") or [None]
    known = isinstance(states[0], dict) and "token" in states[0]
    return states[0] if known else None


class DataModule(lightning.LightningDataModule):
    """The training data of one rank; override it for validation data.

    source: a millrace.torch.Dataset, a DataLoader or StatefulDataLoader of one, a Feed, or an
        address; options are those of millrace.connect(), with dp_rank and dp_size by
        default the trainer's global_rank and world_size.

    A checkpoint without the data's state is refused. Where the data ends, the training does;
    UserError if ``min_steps`` wants more.
    """

    def __init__(self, source: Any = None, **options: Any) -> None:
        super().__init__()
        self._source, self._options = source, options
        self._feed: Feed | None = None

    @property
    def feed(self) -> Feed:
        """The batches, from setup on."""
        if self._feed is None:
            raise UserError("the data has no trainer yet: pass it as trainer.fit(datamodule=...)")
        return self._feed

    def setup(self, stage: str) -> None:
        """Opens the data for training."""
        if stage != "fit":
            return
        if self._feed is None:
            rank, size = self.trainer.global_rank, self.trainer.world_size
            self._feed = feed_of(self._source, rank, size, self._options)
        callbacks = self.trainer.callbacks  # of another fit() there may be one of other data
        others = [callback for callback in callbacks if not isinstance(callback, _Trained)]
        callbacks[:] = [_Trained(self._feed), *others]

    def train_dataloader(self) -> Feed:
        return self.feed
