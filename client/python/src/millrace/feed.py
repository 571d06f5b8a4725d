"""Batches for trainers that fetch ahead of what they train on.

A Feed hands out the batches of a Dataset, or of a DataLoader of one, in order, and is
told which were trained on. Its state is that of the last of them. Whatever was fetched and
not trained on is handed out again by the next iteration: no batch is lost at the end of a
trainer's epoch, nor at a resume. The newest iteration has them, and an older one is over
then: two of them would train on some batches twice, and pass over others. The adapters to
Lightning, Transformers and Accelerate are made of it; it never looks into a batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from millrace.errors import Error, TopologyChanged, UserError
from millrace.state import State, StateNames, beginning, checked, is_beginning
from millrace.torch import Batch, Dataset

__all__ = ["Feed", "feed_of"]

# What to say where a loop goes on that is not the newest.
OVER = (
    "another iteration of the same data has begun, as next(iter(data)) does, and was given the "
    "batches that this one had and that were not trained on: this one is over. To look at a batch, "
    "keep the one that the loop gives, or ask millrace.peek(address, step)"
)


# The same, of another feed.
TAKEN = (
    "another Feed of the same dataset has begun, as that of another attach() does: this one is over"
)


class _Iteration(Iterator[Batch]):
    """An iterator over a feed's batches, from its first next() until a newer one begins."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._number = 0  # among those of the feed; 0: it has not begun

    def __next__(self) -> Batch:
        """Returns the next batch. Raises StopIteration and TopologyChanged as Loader does.

        Before a change of topology come the end of what was fetched and its training, and
        then, in the next iteration, TopologyChanged.
        """
        if not self._number:
            self._number = self._feed._begin()
        return self._feed._next(self._number)


class Feed(StateNames):
    """The batches of a rank, for the trainer that calls trained().

    source: a Dataset, or a DataLoader of one. Worker processes of the DataLoader live as
        long as the feed. The feed owns the dataset's position: nobody else iterates it. Another
        feed of the dataset may take its place, once all that this one fetched was trained on
        or a state was loaded; until then its next() raises UserError.

    Iterating again goes on after the last batch that was trained on, and ends the iteration
    before it. next() of the feed itself is of an iteration of its own.
    """

    def __init__(self, source: Dataset | DataLoader[Batch]) -> None:
        dataset = source if isinstance(source, Dataset) else source.dataset
        if not isinstance(dataset, Dataset):
            raise UserError(
                f"the data is a {type(dataset).__name__}: give a millrace.torch.Dataset, "
                "or a DataLoader of one"
            )
        self.dataset = dataset
        dataset._feeds += 1
        self._number = dataset._feeds
        self._source = source
        self._batches: Iterator[Batch] | None = None
        self._again: deque[Batch] = deque()  # to be handed out before the next ones
        self._fetched: deque[Batch] = deque()  # handed out, not trained on
        self._trained: Batch | None = None  # the last one
        self._loaded: State | None = None
        self._changed: TopologyChanged | None = None  # to be raised by the next iteration
        self._died = False  # the worker of _batches has, of which _batches says nothing more
        self._ended = False  # there is no batch that was not fetched
        self.count = 0  # of batches trained on in this process
        self._newest = self._own = 0  # numbers of iterations: the last that began, that of next()

    def __iter__(self) -> Iterator[Batch]:
        return _Iteration(self)

    def __next__(self) -> Batch:
        if self._own != self._newest:
            self._own = self._begin()
        return self._next(self._own)

    def _begin(self) -> int:
        """Begins another iteration, with what was not trained on; returns its number."""
        self._put_back()
        self._newest += 1
        return self._newest

    def _put_back(self) -> None:
        self._again.extendleft(reversed(self._fetched))
        self._fetched.clear()

    def _next(self, iteration: int) -> Batch:
        if iteration != self._newest:
            raise UserError(OVER)
        self._own_dataset()
        batch = self._again.popleft() if self._again else self._fetch()
        self._fetched.append(batch)
        self._count_untrained()
        return batch

    def _own_dataset(self) -> None:
        """Raises UserError if another feed has the dataset's position, or batches of it."""
        dataset = self.dataset
        if dataset._fed > self._number:
            raise UserError(TAKEN)
        if dataset._fed < self._number and dataset._untrained:
            raise UserError(
                f"{dataset._untrained} batches of this dataset were fetched by another Feed, as "
                "that of an attach() before, and not trained on: this one would pass over them. "
                "Give what attach() returned, or the feed of a DataModule or of Accelerate's data, "
                "in place of the dataset; or load a state first"
            )
        if 0 < dataset._fed < self._number and self._loaded is None:
            self._loaded = dataset.state_dict()  # where that one ended
        dataset._fed = self._number

    def _count_untrained(self) -> None:
        self.dataset._untrained = len(self._again) + len(self._fetched)

    def _fetch(self) -> Batch:
        for batch in (self._trained, *self._fetched):
            if batch is not None:
                batch.hold()
        if self._died:
            self._begin_again()
        try:
            if self._batches is None:
                self._batches = iter(self._source)
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
            self._died = isinstance(self._source, DataLoader)
            raise
        if self._fetched:
            raise StopIteration
        raise self._changed

    def _begin_again(self) -> None:
        """Has a new worker give the next batch, behind the last one handed out.

        If there was none, that is where the dataset began.
        """
        last = self._fetched[-1] if self._fetched else self._trained
        try:
            state = last.state_dict() if last is not None else self._loaded
        except UserError as error:
            raise UserError(
                "the DataLoader ended with an error, and where another iteration of it is to go on "
                f"is not known: {error}. To go on, load the state of a checkpoint"
            ) from error
        try:
            self._go_on(state)
        except RuntimeError:  # PyTorch's handler of signals says it, too
            self._go_on(state)

    def _go_on(self, state: State | None) -> None:
        self._end_worker()
        if state is None:
            self.dataset._rewind()
        else:
            self.dataset.load_state_dict(state)
        self._count_untrained()
        self._died = False

    def _end_worker(self) -> None:
        if self._batches is not None:
            getattr(self._batches, "_shutdown_workers", lambda: None)()
        if isinstance(self._source, DataLoader):
            self._source._iterator = None  # else persistent_workers=True goes on with the dead one
        self._batches = None

    @property
    def exhausted(self) -> bool:
        """Whether there is no batch left that was not fetched."""
        return self._ended

    @property
    def ended(self) -> bool:
        """Whether the data is at its end, and all of it was trained on."""
        return self._ended and not self._again and not self._fetched

    def trained(self, batch: Any = None) -> None:
        """Notes that the trainer is done with the oldest batch that it fetched.

        batch: that batch, or whatever the trainer made of it, if it knows; another one is
            refused.
        """
        if not self._fetched:
            why = OVER if self._again else "it did not come from this feed, or came a second time"
            raise UserError(f"a batch was trained on that is not due: {why}")
        due = self._fetched[0]
        if isinstance(batch, Batch) and _place(batch) != _place(due):
            raise UserError(f"{_place(batch)} was trained on where {_place(due)} was due: {OVER}")
        self._trained = self._fetched.popleft()
        self._count_untrained()
        self.count += 1

    def trained_all(self) -> None:
        """Notes that the trainer is done with every batch that it fetched."""
        while self._fetched:
            self.trained()

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
            self._put_back()
            return
        loaded = checked(state)
        self._end_worker()
        self._again.clear()
        self._fetched.clear()
        self._trained, self._loaded = None, loaded
        self._changed, self._died, self._ended = None, False, False
        self.dataset.load_state_dict(loaded)

    def close(self) -> None:
        """Closes the loader of this process."""
        self.dataset.close()


def _place(batch: Batch) -> str:
    return f"microbatch {batch.microbatch} of step {batch.step}"


def feed_of(source: Any, rank: int, size: int, options: dict[str, Any]) -> Feed:
    """Returns the feed of a trainer's process: rank of size, if not told otherwise.

    source: a Dataset, a DataLoader of one, or an address, with options for connect(); or the
        feed of another trainer, which goes on.
    """
    if source is None or isinstance(source, str):
        return Feed(Dataset(source, **{"dp_rank": rank, "dp_size": size, **options}))
    if options:
        raise UserError(f"the data has its options already: leave out {', '.join(options)}")
    return source if isinstance(source, Feed) else Feed(source)
