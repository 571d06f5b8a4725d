"""Millrace's batches for PyTorch's DataLoader.

    data = millrace.torch.Dataset("planner:7070", dp_rank=r, dp_size=n)
    loader = DataLoader(data, batch_size=None, collate_fn=millrace.torch.keep,
                        num_workers=1, pin_memory=True)
    for batch in loader:
        train(batch)
        checkpoint["data"] = batch.state_dict()

A worker may be forked or spawned; once this process has used a loader itself
(even asked one for its state), only spawned. One worker at most: the service
works in parallel already, and a rank has one position. The state to save is that of the
batch that was trained on: batch.state_dict(). The dataset's own, and that of
torchdata's StatefulDataLoader, are of the last batch that was fetched, which is the same
only where nothing fetches ahead. Lightning, Transformers' Trainer and Accelerate do:
their adapters are millrace.lightning, millrace.transformers and millrace.accelerate.

collate_fn=keep leaves batches as they are, which newer PyTorch does by itself.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing import context, sharedctypes
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import collate

from millrace.config import whole
from millrace.connect import connect
from millrace.errors import UserError
from millrace.loader import Loader
from millrace.receive import Array, Extra, writable
from millrace.state import State, StateNames

__all__ = ["Batch", "Dataset", "keep"]

HF = "hf"  # the output.format of Hugging Face models

# What to do about a batch that something took apart.
SPLIT = (
    "Something splits or joins batches between processes, but each rank gets its own from the "
    "service: with Accelerate use millrace.accelerate.prepare(), with Transformers' Trainer "
    "millrace.transformers.attach(), and before PyTorch 2.0 give DataLoader "
    "collate_fn=millrace.torch.keep. For anything else begin with dict(batch)"
)

# What to do about a persistent worker whose position is not that of the batches trained on.
PERSISTENT = (
    "a worker of persistent_workers=True cannot iterate this dataset a second time, unless the "
    "data was at its end: it would pass over the batches that it had ready, and it knows no state "
    "that was loaded here since. Keep one iterator, or give the DataLoader to millrace.feed.Feed "
    "or to an adapter made of it (millrace.lightning, .transformers, .accelerate)"
)

SPAWNED = (1 << 63) - 1  # stands for the process id of a worker that was not forked


@dataclass
class _Place:
    """Where a batch belongs, and what lies beside its tensors."""

    step: int = -1
    microbatch: int = -1
    after: tuple[int, int] | None = None  # the loader's position after it
    loader: Loader | None = None
    state: State | None = None
    extras: dict[str, list[Extra]] = field(default_factory=dict)
    images: dict[str, Array] = field(default_factory=dict)
    documents: list[int] = field(default_factory=list)  # of each row; for a job with images
    rank: int = -1  # the rank's number, for a job with images
    rows: int = -1
    sequence_length: int = -1
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def whole_state(self) -> State | None:
        """Returns the state after the batch, which is asked for if nobody did."""
        if self.state is None and self.loader is not None and self.after is not None:
            self.state = self.loader.state_at(*self.after)
        return self.state

    def __getstate__(self) -> dict[str, Any]:
        """Makes what is pickled whole: the loader stays behind, the state goes along."""
        return {**self.__dict__, "state": self.whole_state(), "loader": None}


class _Key(str):
    """A key of Batch.items() and Batch.keys(), which knows the batch's place."""

    place: _Place

    def __reduce__(self) -> tuple[Any, ...]:
        """A key that is pickled by itself is a string: the place would ask for a state."""
        return str, (str.__str__(self),)


class _Keys(KeysView[str]):
    """The keys of a batch, which know its place.

    Frameworks rebuild a mapping as ``type(batch)({key: f(value) for key, value in
    batch.items()})``, or of pairs of keys() and values: of all that a batch holds only these keys
    are sure to come along. ``**batch`` is of plain strings, as torch.compile wants them.
    """

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._batch = batch

    def __iter__(self) -> Iterator[str]:
        for name in self._batch:
            key = _Key(name)
            key.place = self._batch._place
            yield key

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self))


class _Items(ItemsView[str, Any]):
    """The items of a batch, by such keys."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._batch = batch

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((key, self._batch[key]) for key in _Keys(self._batch))

    def __reversed__(self) -> Iterator[tuple[str, Any]]:
        return iter(list(self)[::-1])


class Batch(dict[str, Any]):
    """A microbatch of tensors by the model's keys, so that ``model(**batch)`` works.

    It is made of another one's items() or keys(), as a mapping or as pairs of key and value.
    ``step`` and ``microbatch`` say which one it is; state_dict() resumes after it.
    ``rows`` counts the rows of the step's whole batch, ``sequence_length`` their tokens.
    ``extras`` holds what the sources' ``keep`` columns carry, as NumPy arrays of bytes,
    ``images`` what Loader.images does, as NumPy arrays; ``documents`` counts those of each row
    and ``rank`` is the number of this rank, both for a job with images only.
    All of it outlives copies, moves, pinning, pickling, and being rebuilt of its own items.
    It holds the loader of this process, whose state it may ask for; dict(batch) does not.
    The tensors of a step share memory with each other, not with the loader. To save them by
    torch.save(), begin with dict(batch): keys() and items() are of strings that know more.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Iterable[tuple[str, Any]],
        place: _Place | None = None,
    ) -> None:
        pairs = list(tensors.items() if isinstance(tensors, Mapping) else tensors)
        found = place or next((key.place for key, _ in pairs if isinstance(key, _Key)), None)
        super().__init__({str.__str__(key): value for key, value in pairs})
        if found is None:
            raise UserError(f"a batch cannot be made of {list(self)} alone. {SPLIT}")
        self._place = found
        if place is None:
            self._check_shapes()
        elif not place.shapes:
            # By plain keys: those of items() know the place, and would hold it in a ring.
            place.shapes = {k: tuple(self[k].shape) for k in self if _is_tensor(self[k])}

    def _check_shapes(self) -> None:
        """Refuses what no rank was meant to get: parts of a batch, or several in one."""
        for key, shape in self._place.shapes.items():
            if key in self and tuple(getattr(self[key], "shape", shape)) != shape:
                raise UserError(
                    f"{key} of step {self.step}, microbatch {self.microbatch} came as "
                    f"{list(shape)} and was made {list(self[key].shape)}. {SPLIT}"
                )

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        """Returns the keys, which carry the batch's place as those of items() do."""
        return _Keys(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Returns the items. Their keys carry the batch's place to whatever is made of them."""
        return _Items(self)

    @property
    def step(self) -> int:
        """The batch's step."""
        return self._place.step

    @property
    def microbatch(self) -> int:
        """The batch's number in its step."""
        return self._place.microbatch

    @property
    def extras(self) -> dict[str, list[Extra]]:
        """What the sources' ``keep`` columns carry."""
        return self._place.extras

    @property
    def images(self) -> dict[str, Array]:
        """What Loader.images holds."""
        return self._place.images

    @property
    def documents(self) -> list[int]:
        """How many documents each row has, for a job with images."""
        return self._place.documents

    @property
    def rank(self) -> int:
        """The number of this rank among all, for a job with images; else -1."""
        return self._place.rank

    @property
    def rows(self) -> int:
        """Rows of the step's whole batch."""
        return self._place.rows

    @property
    def sequence_length(self) -> int:
        """Tokens of a row."""
        return self._place.sequence_length

    def state_dict(self) -> State:
        """Returns the state after this batch: what to keep in a checkpoint.

        Without a worker this asks the service, once per step. Raises UserError
        for a batch that came without its state.
        """
        state = self._place.whole_state()
        if state is None:
            raise UserError(
                "this batch came without its state: its step is none of "
                "Dataset(state_every=...). Save at one of those"
            )
        return dict(state)

    def hold(self) -> None:
        """Asks for the state if the loader's next request may let the service forget it."""
        place = self._place
        if place.loader and place.after and place.after[0] < place.loader.position[0]:
            place.whole_state()

    def to(self, device: Any, non_blocking: bool = False) -> Batch:
        """Returns the batch on another device."""
        return Batch({key: _to(value, device, non_blocking) for key, value in self.items()})

    def pin_memory(self, device: Any = None) -> Batch:
        """Returns the batch in page-locked memory; DataLoader(pin_memory=True) calls this."""
        return Batch({key: _pinned(value) for key, value in self.items()})

    def replaced(self, tensors: Mapping[str, Any]) -> Batch:
        """Returns the batch with other tensors, of whatever shape, under some of its keys."""
        shapes = {str.__str__(key): tuple(value.shape) for key, value in tensors.items()}
        place = replace(self._place, shapes={**self._place.shapes, **shapes})
        return Batch({**self, **tensors}, place)

    def __copy__(self) -> Batch:
        return Batch(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (dict(self), self._place)


def _unpickled(tensors: dict[str, Any], place: _Place) -> Batch:
    return Batch(tensors, place)


def keep(batch: Batch) -> Batch:
    """Returns batch as it is: the collate_fn for DataLoader."""
    return batch


def _stack(batches: Any, **options: Any) -> Any:
    raise UserError(
        "DataLoader would stack batches, but the dataset gives whole ones: pass it "
        "batch_size=None, collate_fn=millrace.torch.keep"
    )


# PyTorch's own way to say how default_collate treats a type.
collate.default_collate_fn_map[Batch] = _stack


def _is_tensor(value: Any) -> bool:
    return bool(torch.is_tensor(value))


def _to(value: Any, device: Any, non_blocking: bool) -> Any:
    return value.to(device, non_blocking=non_blocking) if torch.is_tensor(value) else value


def _pinned(value: Any) -> Any:
    return value.pin_memory() if torch.is_tensor(value) else value


class Dataset(IterableDataset[Batch], StateNames):
    """The microbatches of one rank, for DataLoader(dataset, batch_size=None, collate_fn=keep).

    source: a Loader, or an address; options are those of millrace.connect().
    state_every: in a worker process, attach the state to the batches of every
        that number of steps (one small request each); 0 for none. Where the topology of
        the job may change, leave it at 1: the state to save then is that of the
        last batch before TopologyChanged.

    A dataset goes on where it is: iterating again does not start again. An error ends no iterator
    of it: after LostError next() may be called again, and returns the batch that was due.
    """

    def __init__(
        self, source: Loader | str | None = None, *, state_every: int = 1, **options: Any
    ) -> None:
        if isinstance(source, Loader) and options:
            raise UserError(f"the loader has its options already: leave out {', '.join(options)}")
        if whole("state_every", state_every) < 0:
            raise UserError(f"state_every is {state_every}: give 0 (never) or a number of steps")
        self._loader = source if isinstance(source, Loader) else connect(source, **options)
        self._state_every = state_every
        self._user = _User()
        self._taken: dict[str, Any] | None = None  # from the loader, and not handed out
        self._iterated = False  # whether a worker does, which this process is
        self._feeds = 0  # that were made of it
        self._fed = 0  # the number of the one that fetched last
        self._untrained = 0  # batches that it fetched, and that were not trained on

    def __iter__(self) -> Iterator[Batch]:
        return _Batches(self)

    def _begin(self, worker: Any) -> None:
        """Raises UserError unless an iterator may begin, in a worker or none."""
        if worker is not None:
            if worker.num_workers > 1:
                raise UserError(
                    f"num_workers is {worker.num_workers}: use 0 or 1. A rank has one position, "
                    "so a second worker would get the same batches"
                )
            if self._iterated and (self._user.outdated() or not self._loader.end):
                raise UserError(PERSISTENT)
            self._iterated = True
        self._user.check()

    def _next(self, with_state: bool) -> Batch:
        """Returns the next batch; with its state, if state_every says so.

        A batch that an error keeps from being handed out, as its state did not come, is the next.
        """
        if self._taken is None:
            self._taken = next(self._loader)
            self._user.enter()
        batch = self._batch(self._taken, with_state)
        self._taken = None
        return batch

    def _batch(self, arrays: dict[str, Any], with_state: bool) -> Batch:
        loader, after = self._loader, self._loader.position
        place = _Place(loader.step or 0, loader.microbatch or 0, after, loader)
        place.extras, place.images = loader.extras, loader.images
        place.rows, place.sequence_length = loader.rows or 0, loader.sequence_length or 0
        if place.images:
            place.documents = [len(row.segments) for row in loader.lineage]
            place.rank = loader.rank
        if with_state and self._state_every and after[0] % self._state_every == 0:
            place.whole_state()
        tensors = {key: _tensor(value) for key, value in arrays.items()}
        if loader.format == HF:
            # With a cache, which models make by default, Transformers masks by causality
            # alone, and the documents of a line see each other.
            tensors["use_cache"] = False
        return Batch(tensors, place)

    @property
    def loader(self) -> Loader:
        """The loader underneath; only the process that iterates should use it."""
        return self._loader

    def state_dict(self) -> State:
        """Returns the state after the last batch that this process got from the dataset.

        Raises UserError if a worker process iterates: ask the batch then.
        """
        if self._user.elsewhere() and get_worker_info() is not None:
            raise UserError(
                "this worker does not know where the one of the iteration before ended: call "
                "loader.load_state_dict(loader.state_dict()) of the StatefulDataLoader before it "
                "is iterated again"
            )
        if self._user.elsewhere():
            raise UserError(
                "a DataLoader worker has this dataset's position, and is ahead of you: use "
                "batch.state_dict() of the last batch, or torchdata's StatefulDataLoader"
            )
        loader = self._loader
        if self._taken is not None:
            return loader.state_at(loader.step or 0, loader.microbatch or 0)
        return loader.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Goes on after that state. With workers: before the DataLoader is iterated."""
        self._loader.load_state_dict(state)
        self._leave()

    def _rewind(self) -> None:
        """Goes back to where the dataset began: behind the state loaded last, if there is one."""
        self._loader._go_back(self._loader._loaded)
        self._leave()

    def _leave(self) -> None:
        self._taken, self._iterated, self._untrained = None, False, 0
        self._user.leave()

    def start_prefetch(self) -> None:
        """See Loader.start_prefetch(); for use without workers."""
        self._loader.start_prefetch()

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: the job's spec orders every epoch, by its own seed."""

    def close(self) -> None:
        """Closes the loader of this process."""
        self._loader.close()


def _tensor(value: Any) -> Any:
    return value if isinstance(value, int) else torch.from_numpy(writable(value))


class _Batches(Iterator[Batch]):
    """An iterator over a dataset, which only the end of data ends."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._begun = False

    def __next__(self) -> Batch:
        worker = get_worker_info()
        if not self._begun:  # an error here reaches the trainer, one of __iter__ ends the worker
            self._dataset._begin(worker)
            self._begun = True
        batch = self._dataset._next(worker is not None)
        if worker is not None:
            batch._place.loader = None
        return batch


class _User:
    """Which process iterates the dataset: eight bytes shared with forked workers.

    And how often a state was loaded, which spawned workers see, too.
    """

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 8)
        self._loads = sharedctypes.RawValue("Q", 0)
        self._known = 0  # of these, what this process has heard of

    def check(self) -> None:
        """Raises UserError if there was another one than this process."""
        if self.elsewhere():
            raise UserError(
                "another process iterated this dataset already, so its position is not known "
                "here: load_state_dict(batch.state_dict()) of the last batch first"
            )

    def enter(self) -> None:
        """Makes this process the one."""
        self._put(os.getpid())

    def leave(self) -> None:
        """Makes no process the one, as a state was loaded in this one."""
        self._put(0)
        if get_worker_info() is None:  # one that a worker loads is for itself
            self._loads.value += 1
        self._known = self._loads.value

    def elsewhere(self) -> bool:
        """Says whether another process is the one."""
        return self._get() not in (0, os.getpid())

    def outdated(self) -> bool:
        """Says whether the worker's parent has loaded a state that the worker does not know."""
        return bool(self._known != self._loads.value)

    def _get(self) -> int:
        return int.from_bytes(self._shared[:], "little")

    def _put(self, pid: int) -> None:
        self._shared[:] = pid.to_bytes(8, "little")

    def __getstate__(self) -> tuple[int, int, Any]:
        pid = self._get()
        if context.get_spawning_popen() is None:
            return pid, 0, None
        self._put(SPAWNED)  # it is on its way to a worker
        return pid, self._known, self._loads

    def __setstate__(self, state: tuple[int, int, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        pid, self._known, loads = state
        self._put(pid)
        if loads is not None:
            self._loads = loads
