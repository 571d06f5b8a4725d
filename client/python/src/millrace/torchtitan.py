"""Batches for torchtitan (``output.format: torchtitan``).

    data = millrace.torchtitan.DataLoader("planner:7070", **coordinates_from_mesh(mesh))
    for inputs, labels in data:  # {"input", "positions"}, and labels
        ...

In a torchtitan config, ``millrace.torchtitan.DataLoader.Config(address="planner:7070")``
takes the place of its own data loader's; ``--dataloader.address`` may change it. Positions
restart in each document, so that torchtitan's masks separate documents; labels are shifted, with
-100 where there is no loss. Images (pixel_values and image_grid_thw) keep their shape beside
the input.
torchtitan cuts for context parallelism itself: such jobs have ``cp_slicing: none``.

The state is the same on all ranks, so that it does not matter which of them a
distributed checkpoint keeps.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from millrace.config import check_choice
from millrace.connect import connect
from millrace.errors import UserError
from millrace.loader import Loader
from millrace.receive import VISION, writable
from millrace.state import State, StateNames

__all__ = ["DataLoader"]

FORMAT = "torchtitan"


@dataclass
class _Config:
    """Builds the loader where torchtitan builds its own.

    options are those of connect(); a mesh with more axes than data parallelism
    needs them: ``options=millrace.coordinates_from_mesh(device_mesh)``.
    """

    address: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(
        self,
        *,
        dp_rank: int,
        dp_world_size: int,
        seq_len: int | None = None,
        local_batch_size: int = 1,
        num_tokens_per_batch: int | None = None,
        **_: Any,
    ) -> DataLoader:
        """Returns the loader of a rank. The job spec says the rest."""
        for name in ("dataset", "dataset_path"):  # torchtitan's own, where it is installed
            if given := getattr(self, name, None):
                raise UserError(f"{name} is {given!r}: leave it out, the job spec names the data")
        options = {"dp_rank": dp_rank, "dp_size": dp_world_size, **self.options}
        if seq_len is not None:
            num_tokens_per_batch = seq_len * local_batch_size
        return DataLoader(
            self.address,
            seq_len=seq_len,
            num_tokens_per_batch=num_tokens_per_batch,
            **options,
        )


@functools.cache
def _config() -> type[_Config]:
    """Returns the class of configurations: for torchtitan's own parser, one of its classes.

    It takes the options of the default's class, and only if that is derived from its own.
    """
    try:
        from torchtitan.components.dataloader import BaseDataLoader

        base = BaseDataLoader.Config
    except (ImportError, AttributeError):  # none, or one of before such classes
        return _Config
    names = {
        "__module__": __name__,
        "__qualname__": "DataLoader.Config",
        "__doc__": _Config.__doc__,
    }
    return dataclass(type("Config", (_Config, base), names))


class _Late:
    """Makes DataLoader.Config when it is used: torchtitan is imported then."""

    def __get__(self, instance: object, owner: type) -> type[_Config]:
        return _config()


class DataLoader(StateNames):
    """The microbatches of one rank, as torchtitan's BaseDataLoader yields them.

    source: a Loader, or an address; options are those of millrace.connect(). Its tensors, if
        given, have input and labels.
    seq_len: torchtitan up to 0.3 wants a batch axis, [rows, seq_len]; without it
        tensors are flat, as newer versions want them.
    num_tokens_per_batch: the trainer's own number, checked against the batches.

    Config(address=..., options=...) builds it in a torchtitan config; where torchtitan is
    installed, it is one of its BaseDataLoader.Config.

    It is an iterator: iterating again goes on, it does not start again, and after LostError
    next() may be called again.
    """

    Config = _Late()

    def __init__(
        self,
        source: Loader | str | None = None,
        *,
        seq_len: int | None = None,
        num_tokens_per_batch: int | None = None,
        **options: Any,
    ) -> None:
        if isinstance(source, Loader) and options:
            raise UserError(f"the loader has its options already: leave out {', '.join(options)}")
        self._loader = source if isinstance(source, Loader) else connect(source, **options)
        check_choice(self._loader.tensors, ("input", "labels"), "torchtitan trains on both")
        self._seq_len = seq_len
        self._tokens = num_tokens_per_batch

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Any]]:
        return self

    def __next__(self) -> tuple[dict[str, Any], Any]:
        import torch

        if self._loader.format != FORMAT:
            raise UserError(f"the job has output.format {self._loader.format}: write {FORMAT}")
        batch = next(self._loader)
        size = batch["labels"].size
        if self._tokens not in (None, size) or size % (self._seq_len or 1):
            raise UserError(
                f"the job's microbatches have {size} tokens, the trainer wants "
                f"{self._tokens or self._seq_len}: it is batch.sequence_length * "
                "batch.microbatch_size of the job spec"
            )
        shape = (-1, self._seq_len) if self._seq_len else (-1,)
        inputs = {
            key: torch.from_numpy(value if key in VISION else value.reshape(shape))
            for key, value in ((key, writable(value)) for key, value in batch.items())
        }
        labels = inputs.pop("labels")
        return inputs, labels

    @property
    def loader(self) -> Loader:
        """The loader underneath: its lineage, extras, images and stats."""
        return self._loader

    def state_dict(self) -> State:
        """Returns the state after the last batch yielded, the same on all ranks."""
        return self._loader.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Goes on after that state. An empty one, of a checkpoint without data, changes nothing."""
        if state:
            self._loader.load_state_dict(state)

    def close(self) -> None:
        """Closes the loader."""
        self._loader.close()
