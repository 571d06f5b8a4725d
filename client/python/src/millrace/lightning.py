"""Batches for Lightning, and their state in its checkpoints.

    data = millrace.lightning.DataModule("planner:7070")
    trainer.fit(model, datamodule=data, ckpt_path="last")

Lightning fetches one batch ahead. The state that this saves is that of the last batch
trained on, so that a resume trains on each batch once. It is made for both packages,
``lightning`` and ``pytorch_lightning``.
"""

from __future__ import annotations

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

KEY = "millrace"  # of the state in a checkpoint


class _Trained(lightning.Callback):
    """Tells the feed what was trained on, before anybody can save a checkpoint of it."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self._feed.trained()


class DataModule(lightning.LightningDataModule):
    """The training data of one rank; override it for validation data.

    source: a millrace.torch.Dataset, a DataLoader or StatefulDataLoader of one, or an
        address; options are those of millrace.connect(), with dp_rank and dp_size by
        default the trainer's global_rank and world_size.

    A checkpoint without the data's state is refused.
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

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[KEY] = self.feed.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self._feed is None:  # nothing is trained
            return
        if KEY not in checkpoint:
            raise UserError(
                "the checkpoint has no state of the data: it was saved without "
                "millrace.lightning.DataModule. Load a state with data.feed.load_state_dict(), or "
                "load the model's weights alone to begin the data again"
            )
        self._feed.load_state_dict(checkpoint[KEY])
