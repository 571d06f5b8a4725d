"""Batches for a training loop with Hugging Face Accelerate.

    data = millrace.accelerate.prepare(accelerator, "planner:7070")
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.load_state(folder)  # when resuming
    for batch in data:
        with accelerator.accumulate(model):
            ...
        accelerator.save_state(folder)

Each process gets its own batches from the service. accelerator.prepare() of a DataLoader would
split the batches of one process over all, and fetch one ahead; this does neither, and its
state is in what save_state() writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from millrace.errors import UserError
from millrace.feed import OVER, Feed, feed_of
from millrace.state import State, StateNames
from millrace.torch import Batch, keep

__all__ = ["Data", "prepare"]


class _Fetched(IterableDataset[Batch]):
    """A feed as a dataset, which is what Accelerate wraps."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._feed)


class Data(StateNames):
    """The batches of one process on its device. Its state is that of the last one yielded.

    Iterating again goes on, it does not start again, and ends the iteration before it. After
    LostError next() may be called again.
    """

    def __init__(self, accelerator: Any, feed: Feed) -> None:
        from accelerate.data_loader import prepare_data_loader

        self.feed = feed
        self.loads = 0  # of states
        self.newest = 0  # the number of the last iteration that began
        # Alone as far as Accelerate knows: it moves batches to the device, and looks one
        # ahead so that gradients of the last ones are applied. It has nothing to deal out.
        self.batches = prepare_data_loader(
            DataLoader(_Fetched(feed), batch_size=None, collate_fn=keep),
            accelerator.device,
            num_processes=1,
            process_index=0,
            put_on_device=True,
            dispatch_batches=False,
        )

    def __iter__(self) -> Iterator[Batch]:
        return _Batches(self)

    def state_dict(self) -> State:
        """Returns the state after the last batch yielded, the same on all ranks."""
        return self.feed.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Goes on after that state."""
        self.feed.load_state_dict(state)
        self.loads += 1

    def close(self) -> None:
        """Closes the loader of this process."""
        self.feed.close()


class _Batches(Iterator[Batch]):
    """An iterator over Accelerate's batches of a feed.

    Only the end of data ends it, and a newer one.
    """

    def __init__(self, data: Data) -> None:
        self._data = data
        self._number = 0  # among those of the data; 0: it has not begun
        self._inner: Any = None
        self._loads = 0  # that _inner knows of

    def __next__(self) -> Batch:
        if not self._number:
            self._number = self._data.newest = self._data.newest + 1
        if self._number != self._data.newest:
            raise UserError(OVER)
        if self._inner is not None and self._loads != self._data.loads:
            self._inner = None  # what it has fetched is of before
            self._data.batches.end()
        if self._inner is None:
            self._inner, self._loads = iter(self._data.batches), self._data.loads
        try:
            batch: Batch = next(self._inner)
        except StopIteration:
            raise
        except Exception:
            self._inner = None  # it is at its end; what it had fetched, the feed gives the next one
            raise
        self._data.feed.trained(batch)
        return batch


def prepare(accelerator: Any, source: Any = None, **options: Any) -> Data:
    """Returns the batches of this process; accelerator saves and loads their state.

    source: a millrace.torch.Dataset, a DataLoader of one that was not prepared, a Feed, or an
        address; options are those of millrace.connect(), with dp_rank and dp_size by
        default the accelerator's process_index and num_processes.
    """
    feed = feed_of(source, accelerator.process_index, accelerator.num_processes, options)
    data = Data(accelerator, feed)
    accelerator.register_for_checkpointing(data)
    return data
