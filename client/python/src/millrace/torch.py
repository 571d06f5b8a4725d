"""Millrace's batches for PyTorch's DataLoader.

    data = millrace.torch.Dataset("planner:7070", dp_rank=r, dp_size=n)
    loader = DataLoader(data, batch_size=None, collate_fn=millrace.torch.keep,
                        num_workers=1, pin_memory=True)
    for batch in loader:
        train(batch)
        checkpoint["data"] = batch.state_dict()

A worker may be forked or spawned; once this process has used a loader itself
(even asked one for its state), only spawned. One worker at most: the service
works in parallel already, and a rank has one position. The worker is ahead of
the trainer, so in the main process only a batch knows the exact state;
torchdata's StatefulDataLoader asks in the worker and knows it, too.

collate_fn=keep leaves batches as they are. Newer PyTorch does that by itself,
older versions build a dict of the same tensors that has lost its state; before
2.0, pin_memory=True does so too, and ``batch.pin_memory()`` is the way out.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from multiprocessing import context
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import collate

from millrace.config import whole
from millrace.connect import connect
from millrace.errors import UserError
from millrace.loader import Loader
from millrace.receive import Array, Extra
from millrace.state import State, StateNames

__all__ = ["Batch", "Dataset", "keep"]

SPAWNED = (1 << 63) - 1  # stands for the process id of a worker that was not forked


class Batch(dict[str, Any]):
    """A microbatch of tensors by the model's keys, so that ``model(**batch)`` works.

    ``step`` and ``microbatch`` say which one it is; state_dict() resumes after it.
    ``rows`` counts the rows of the step's whole batch, ``sequence_length`` their tokens.
    ``extras`` holds what the sources' ``keep`` columns carry, as NumPy arrays of bytes,
    ``images`` what Loader.images does, as NumPy arrays.
    The tensors of a step share memory with each other, not with the loader.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any],
        step: int = -1,
        microbatch: int = -1,
        after: tuple[int, int] | None = None,
        loader: Loader | None = None,
        state: State | None = None,
        extras: dict[str, list[Extra]] | None = None,
    ) -> None:
        super().__init__(tensors)
        self.extras = extras or {}
        self.images: dict[str, Array] = {}
        self.sequence_length = self.rows = -1
        self.step = step
        self.microbatch = microbatch
        self._after = after  # the loader's position after it
        self._loader = loader
        self._state = state

    def state_dict(self) -> State:
        """Returns the state after this batch: what to keep in a checkpoint.

        Without a worker this asks the service, once per step. Raises UserError
        for a batch that came without its state.
        """
        if self._state is None and self._loader is not None and self._after is not None:
            self._state = self._loader.state_at(*self._after)
        if self._state is None:
            raise UserError(
                "this batch came without its state: either its step is not one of "
                "Dataset(state_every=...), or something rebuilt it as another dict: pass "
                "collate_fn=millrace.torch.keep to DataLoader, and before PyTorch 2.0 call "
                "batch.pin_memory() yourself instead of pin_memory=True"
            )
        return dict(self._state)

    def to(self, device: Any, non_blocking: bool = False) -> Batch:
        """Returns the batch on another device."""
        return self._like({key: _to(value, device, non_blocking) for key, value in self.items()})

    def pin_memory(self, device: Any = None) -> Batch:
        """Returns the batch in page-locked memory; DataLoader(pin_memory=True) calls this."""
        return self._like({key: _pinned(value) for key, value in self.items()})

    def _like(self, tensors: Mapping[str, Any]) -> Batch:
        made = Batch(tensors)
        made.__dict__.update(self.__dict__)
        return made

    def __copy__(self) -> Batch:
        return self._like(self)

    def __getstate__(self) -> dict[str, Any]:
        """Makes a pickled batch whole: the loader stays behind, the state goes along."""
        state = self.state_dict() if self._loader is not None else self._state
        return {**self.__dict__, "_loader": None, "_state": state}


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


def _to(value: Any, device: Any, non_blocking: bool) -> Any:
    return value.to(device, non_blocking=non_blocking) if torch.is_tensor(value) else value


def _pinned(value: Any) -> Any:
    return value.pin_memory() if torch.is_tensor(value) else value


class Dataset(IterableDataset[Batch], StateNames):
    """The microbatches of one rank, for DataLoader(dataset, batch_size=None, collate_fn=keep).

    source: a Loader, or an address; options are those of millrace.connect().
    state_every: in a worker process, attach the state to the batches of every
        so many steps (one small request each); 0 for none. Where the topology of
        the job may change, leave it at 1: the state to save then is that of the
        last batch before TopologyChanged.

    A dataset goes on where it is: iterating again does not start again.
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

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        if worker is not None and worker.num_workers > 1:
            raise UserError(
                f"num_workers is {worker.num_workers}: use 0 or 1. A rank has one position, "
                "so a second worker would get the same batches"
            )
        self._user.check()
        for arrays in self._loader:
            self._user.enter()
            yield self._batch(arrays, worker is not None)

    def _batch(self, arrays: dict[str, Any], in_worker: bool) -> Batch:
        loader, after = self._loader, self._loader.position
        tensors = {key: _tensor(value) for key, value in arrays.items()}
        batch = Batch(tensors, loader.step or 0, loader.microbatch or 0, after)
        batch.extras, batch.images = loader.extras, loader.images
        batch.rows, batch.sequence_length = loader.rows or 0, loader.sequence_length or 0
        if not in_worker:
            batch._loader = loader
        elif self._state_every and after[0] % self._state_every == 0:
            batch._state = loader.state_dict()
        return batch

    @property
    def loader(self) -> Loader:
        """The loader underneath; only the process that iterates should use it."""
        return self._loader

    def state_dict(self) -> State:
        """Returns the state after the last batch that this process got from the dataset.

        Raises UserError if a worker process iterates: ask the batch then.
        """
        if self._user.elsewhere():
            raise UserError(
                "a DataLoader worker has this dataset's position, and is ahead of you: use "
                "batch.state_dict() of the last batch, or torchdata's StatefulDataLoader"
            )
        return self._loader.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Goes on after that state. With workers: before the DataLoader is iterated."""
        self._loader.load_state_dict(state)
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
    return value if isinstance(value, int) else torch.from_numpy(value)


class _User:
    """Which process iterates the dataset: eight bytes shared with forked workers."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 8)

    def check(self) -> None:
        """Raises UserError if there was another one than this process."""
        if self.elsewhere():
            raise UserError(
                "another process iterated this dataset already, so its position is not known "
                "here: load_state_dict(batch.state_dict()) of the last batch first, or use "
                "persistent_workers=True"
            )

    def enter(self) -> None:
        """Makes this process the one."""
        self._put(os.getpid())

    def leave(self) -> None:
        """Makes no process the one."""
        self._put(0)

    def elsewhere(self) -> bool:
        """Says whether another process is the one."""
        return self._get() not in (0, os.getpid())

    def _get(self) -> int:
        return int.from_bytes(self._shared[:], "little")

    def _put(self, pid: int) -> None:
        self._shared[:] = pid.to_bytes(8, "little")

    def __getstate__(self) -> int:
        pid = self._get()
        if context.get_spawning_popen() is not None:  # on its way to a worker
            self._put(SPAWNED)
        return pid

    def __setstate__(self, pid: int) -> None:
        self.__init__()  # type: ignore[misc]
        self._put(pid)
