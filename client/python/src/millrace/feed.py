"""Batches for trainers that fetch ahead of what they train on.

A Feed hands out the batches of a Dataset, or of a DataLoader of one, in order, and is
told which were trained on. Its state is that of the last of them. Whatever was fetched and
not trained on is handed out again by the next iteration: no batch is lost at the end of a
trainer's epoch, nor at a resume. The adapters to Lightning, Transformers and Accelerate
are made of it; it never looks into a batch.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from millrace.errors import Error, TopologyChanged, UserError
from millrace.state import State, StateNames, beginning, checked, is_beginning
from millrace.torch import Batch, Dataset

__all__ = ["Feed", "feed_of"]


class Feed(StateNames):
    """An iterator over a rank's batches, for the trainer that calls trained().

    source: a Dataset, or a DataLoader of one. Worker processes of the DataLoader live as
        long as the feed. The feed owns the dataset's position: nobody else iterates it.

    Iterating again goes on after the last batch that was trained on.
    """

    def __init__(self, source: Dataset | DataLoader[Batch]) -> None:
        dataset = source if isinstance(source, Dataset) else source.dataset
        if not isinstance(dataset, Dataset):
            raise UserError(
                f"the data is a {type(dataset).__name__}: give a millrace.torch.Dataset, "
                "or a DataLoader of one"
            )
        self.dataset = dataset
        self._source = source
        self._batches: Iterator[Batch] | None = None
        self._again: deque[Batch] = deque()  # to be handed out before the next ones
        self._fetched: deque[Batch] = deque()  # handed out, not trained on
        self._trained: Batch | None = None  # the last one
        self._loaded: State | None = None
        self._changed: TopologyChanged | None = None  # to be raised by the next iteration
        self._ended = False  # there is no batch that was not fetched

    def __iter__(self) -> Iterator[Batch]:
        self._again.extendleft(reversed(self._fetched))
        self._fetched.clear()
        return self

    def __next__(self) -> Batch:
        """Returns the next batch. Raises StopIteration and TopologyChanged as Loader does.

        Before a change of topology come the end of what was fetched and its training, and
        then, in the next iteration, TopologyChanged.
        """
        batch = self._again.popleft() if self._again else self._next()
        self._fetched.append(batch)
        return batch

    def _next(self) -> Batch:
        for batch in (self._trained, *self._fetched):
            if batch is not None:
                batch.hold()
        if self._batches is None:
            self._batches = iter(self._source)
        try:
            if self._changed is None:
                return next(self._batches)
        except TopologyChanged as changed:
            self._changed = changed
        except StopIteration:
            self._ended = True
            raise
        except Error:
            raise
        except Exception:  # a worker process of the DataLoader has died, which it says once
            with contextlib.suppress(Error):  # no state is known
                self._begin_again()
            raise
        if self._fetched:
            raise StopIteration
        raise self._changed

    def _begin_again(self) -> None:
        """Has a new worker give the next batch, behind the last one handed out."""
        if not isinstance(self._source, DataLoader):
            return
        last = self._fetched[-1] if self._fetched else self._trained
        state = last.state_dict() if last is not None else self._loaded
        if state is not None:
            self._end_worker()
            self.dataset.load_state_dict(state)

    def _end_worker(self) -> None:
        if self._batches is not None:
            getattr(self._batches, "_shutdown_workers", lambda: None)()
        if isinstance(self._source, DataLoader):
            self._source._iterator = None  # else persistent_workers=True goes on with the dead one
        self._batches = None

    @property
    def ended(self) -> bool:
        """Whether the data is at its end, and all of it was trained on."""
        return self._ended and not self._again and not self._fetched

    def trained(self) -> None:
        """Notes that the trainer is done with the oldest batch that it fetched."""
        if not self._fetched:
            raise UserError("a batch was trained on that did not come from this feed")
        self._trained = self._fetched.popleft()

    @property
    def loaded(self) -> bool:
        """Whether a state was loaded and no batch was trained on since."""
        return self._loaded is not None and self._trained is None

    def state_dict(self) -> State:
        """Returns the state after the last batch trained on, the same on all ranks.

        Without a token if there was none, and no state was loaded: that is the job's beginning.
        """
        if self._trained is not None:
            return self._trained.state_dict()
        return dict(self._loaded or beginning())

    def load_state_dict(self, state: State) -> None:
        """Goes on after that state; drops what was fetched, and the DataLoader's worker.

        That of a checkpoint which was saved before any training changes nothing, and is refused
        after some: no way leads back to it.
        """
        if is_beginning(state):
            if self._trained is not None:
                raise UserError(
                    "the state is of before any batch, and has no token to go back by: begin with "
                    "a new loader, or load the state of a later checkpoint"
                )
            iter(self)
            return
        loaded = checked(state)
        self._end_worker()
        self._again.clear()
        self._fetched.clear()
        self._trained, self._loaded = None, loaded
        self._changed, self._ended = None, False
        self.dataset.load_state_dict(loaded)

    def close(self) -> None:
        """Closes the loader of this process."""
        self.dataset.close()


def feed_of(source: Any, rank: int, size: int, options: dict[str, Any]) -> Feed:
    """Returns the feed of a trainer's process: rank of size, if not told otherwise.

    source: a Dataset, a DataLoader of one, or an address, with options for connect().
    """
    if source is None or isinstance(source, str):
        return Feed(Dataset(source, **{"dp_rank": rank, "dp_size": size, **options}))
    if options:
        raise UserError(f"the data has its options already: leave out {', '.join(options)}")
    return Feed(source)
