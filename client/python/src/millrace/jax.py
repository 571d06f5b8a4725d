"""Batches for JAX trainers (``output.format: jax``): MaxText's names, int32.

    data = millrace.jax.Iterator("planner:7070", dp_rank=jax.process_index(),
                                 dp_size=jax.process_count(), sharding=sharding)
    for batch in data:  # inputs, inputs_position, inputs_segmentation, targets, ...
        state, loss = train_step(state, batch)

Grain's checkpoint handler takes it: get_state() is JSON as bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator as Iterates
from typing import Any

from millrace.connect import connect
from millrace.errors import UserError
from millrace.loader import Loader
from millrace.receive import VISION
from millrace.state import State, StateNames, from_json, to_json

__all__ = ["Iterator"]


class Iterator(StateNames):
    """The microbatches of one process, as dicts of arrays.

    source: a Loader, or an address; options are those of millrace.connect().
    sharding: a jax.sharding.Sharding of global arrays, of which each process has its
        rows; without it the arrays are those of this process, on its default device, as
        pixel_values and image_grid_thw always are: processes have unlike numbers of images.
    """

    def __init__(
        self, source: Loader | str | None = None, *, sharding: Any = None, **options: Any
    ) -> None:
        if isinstance(source, Loader) and options:
            raise UserError(f"the loader has its options already: leave out {', '.join(options)}")
        self._loader = source if isinstance(source, Loader) else connect(source, **options)
        self._sharding = sharding

    def __iter__(self) -> Iterates[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        import jax

        def made(key: str, value: Any) -> Any:
            if self._sharding is None or key in VISION:
                return jax.numpy.asarray(value)
            return jax.make_array_from_process_local_data(self._sharding, value)

        return {key: made(key, value) for key, value in next(self._loader).items()}

    def start_prefetch(self) -> None:
        """See Loader.start_prefetch(); Grain calls it after a restore."""
        self._loader.start_prefetch()

    @property
    def loader(self) -> Loader:
        """The loader underneath: its lineage, extras, images and stats."""
        return self._loader

    def state_dict(self) -> State:
        """Returns the state after the last batch returned, the same on all processes."""
        return self._loader.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Goes on after that state."""
        self._loader.load_state_dict(state)

    def get_state(self) -> bytes:  # type: ignore[override]
        """Returns the state as JSON, which is how Grain's checkpoint handler keeps it."""
        return json.dumps(to_json(self.state_dict())).encode()

    def set_state(self, state: bytes | State) -> None:
        """Goes on after what get_state() returned, or state_dict()."""
        self.load_state_dict(state if isinstance(state, dict) else from_json(state))

    def close(self) -> None:
        """Closes the loader."""
        self._loader.close()
