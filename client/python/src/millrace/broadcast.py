"""One rank of a group fetches, and the others get its batches by torch.distributed.

    batches = millrace.broadcast.Batches(
        "planner:7070", group=tp_group, device="cuda",
        dp_rank=r, dp_size=n, tp_rank=t, tp_size=m,
    )
    for batch in batches:
        train(batch)

For jobs with ``output.broadcast_at: tp``: a group of tensor-parallel ranks has one connection
in place of one each. All ranks of the group make it, with their own coordinates, and take each
batch together, as next() is a collective call. Megatron-LM broadcasts by itself and needs none.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from millrace import errors
from millrace.errors import Error, LostError, UserError
from millrace.loader import Loader
from millrace.state import State, StateNames
from millrace.torch import Batch, Dataset

__all__ = ["Batches"]

ALIGN = 64  # of tensors in the buffer: any type may be seen there


class Batches(StateNames):
    """The batches of the group's first rank, the same tensors on each of its ranks.

    source, options: a Loader, or an address, and what millrace.connect() takes, of this rank.
    group: a process group of torch.distributed whose first rank is the one that fetches: tp_rank 0.
        Default: all processes.
    device: where the tensors are to be. With NCCL that of this process, such as "cuda".
    state_every: have the batches of every that number of steps carry their state, on all ranks
        (one small request each); 0 for none.

    next() returns a millrace.torch.Batch, whose tensors share one buffer. What the first rank
    gets in place of a batch, the end or an error, all get, and after LostError all get the batch by
    calling next() again. Where a process is lost the others wait for as long as torch.distributed
    has them wait.
    """

    def __init__(
        self,
        source: Loader | str | None = None,
        *,
        group: Any = None,
        device: Any = "cpu",
        state_every: int = 0,
        **options: Any,
    ) -> None:
        self._dataset = Dataset(source, state_every=state_every, **options)
        self._group, self._device = group, torch.device(device)
        self._fetches = dist.get_rank(group) == 0
        self._checked = False

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """Returns the next batch. Raises what the first rank's loader does, on all ranks alike."""
        self._check()
        failure: Exception | None = None
        batch: Batch | None = None
        if self._fetches:
            try:
                batch = self._dataset._next(with_state=True)
            except (StopIteration, Error) as error:
                failure = error
        meta, body = self._exchange(*self._packed(batch, failure))
        if failure is not None:
            raise failure
        if "error" in meta:
            raise _error(*meta["error"])
        tensors = {key: _view(body, value) for key, value in meta["values"].items()}
        return Batch(tensors, batch._place if batch is not None else meta["place"])

    # ---- what goes around ----

    def _packed(self, batch: Batch | None, failure: Exception | None) -> tuple[Any, list[Any]]:
        """What the first rank says of a batch, and its tensors; nothing on the others."""
        if failure is not None:
            return {"error": (type(failure).__name__, str(failure), _code(failure))}, []
        if batch is None:
            return None, []
        values: dict[str, Any] = {}
        tensors: list[Any] = []
        at = 0
        for key, value in dict(batch).items():
            if not torch.is_tensor(value):
                values[key] = value
                continue
            values[key] = _Slice(at, value.dtype, tuple(value.shape))
            tensors.append(value)
            at = _aligned(at + value.numel() * value.element_size())
        place = replace(batch._place, loader=None)
        return {"values": values, "place": place, "bytes": at}, tensors

    def _exchange(self, meta: Any, tensors: list[Any]) -> tuple[Any, Any]:
        """Sends on the first rank, receives on all: the description, and the buffer."""
        said = pickle.dumps(meta) if self._fetches else b""
        sizes = torch.tensor([len(said), (meta or {}).get("bytes", 0)], device=self._device)
        self._broadcast(sizes)
        length, size = (int(n) for n in sizes)
        start = _aligned(length)
        buffer = torch.empty(start + size, dtype=torch.uint8, device=self._device)
        if self._fetches:
            buffer[:length] = torch.frombuffer(bytearray(said), dtype=torch.uint8)
            slices = [v for v in meta.get("values", {}).values() if isinstance(v, _Slice)]
            for piece, tensor in zip(slices, tensors):
                _view(buffer[start:], piece).copy_(tensor)
        self._broadcast(buffer)
        if not self._fetches:
            meta = pickle.loads(buffer[:length].cpu().numpy().tobytes())
        return meta, buffer[start:]

    def _broadcast(self, tensor: Any) -> None:
        root = dist.get_global_rank(self._group, 0) if self._group is not None else 0
        dist.broadcast(tensor, root, group=self._group)

    # ---- life ----

    def _check(self) -> None:
        """Asks the service once whether this rank is to fetch, and agrees with the others."""
        if self._checked:
            return
        failure: Error | None = None
        try:
            if self._dataset.loader.fetches != self._fetches:
                failure = UserError(self._misplaced())
        except Error as error:
            failure = error
        fits = torch.tensor([failure is None], dtype=torch.int32, device=self._device)
        dist.all_reduce(fits, dist.ReduceOp.MIN, group=self._group)
        if failure is not None:
            raise failure
        if not int(fits[0]):
            raise LostError("another rank of the group could not begin: its error says why")
        if not self._fetches:
            self._dataset.close()
        self._checked = True

    def _misplaced(self) -> str:
        if self._fetches:
            return (
                "the group's first rank fetches nothing, as the job broadcasts from tp_rank 0: "
                "make groups whose first rank is that one"
            )
        return (
            "the job has each rank of the group fetch by itself: write output.broadcast_at: tp, "
            "and make groups of the ranks of one tensor-parallel group"
        )

    def state_dict(self) -> State:
        """Returns the state after the last batch, on the first rank of the group."""
        self._only_first("has")
        return self._dataset.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Goes on after that state. All ranks may call it; it is the first one that does so."""
        if self._fetches:
            self._dataset.load_state_dict(state)

    def _only_first(self, verb: str) -> None:
        if not self._fetches:
            raise UserError(
                f"the first rank of the group {verb} the state, which is the same for all ranks: "
                "save it there, or take batch.state_dict() of Batches(state_every=...)"
            )

    def start_prefetch(self) -> None:
        """See Loader.start_prefetch()."""
        if self._fetches:
            self._dataset.start_prefetch()

    def close(self) -> None:
        """Closes the loader of this process."""
        self._dataset.close()


class _Slice:
    """Where a tensor lies in the buffer."""

    def __init__(self, at: int, dtype: Any, shape: tuple[int, ...]) -> None:
        self.at, self.dtype, self.shape = at, dtype, shape


def _view(buffer: Any, piece: Any) -> Any:
    """The tensor of a slice of the buffer; other values as they are."""
    if not isinstance(piece, _Slice):
        return piece
    count = 1
    for n in piece.shape:
        count *= n
    size = count * torch.empty(0, dtype=piece.dtype).element_size()
    return buffer[piece.at : piece.at + size].view(piece.dtype).reshape(piece.shape)


def _aligned(size: int) -> int:
    return (size + ALIGN - 1) // ALIGN * ALIGN


def _code(error: Exception) -> str:
    return error.code if isinstance(error, Error) else ""


def _error(name: str, text: str, code: str) -> Exception:
    """The error of the first rank, on another one."""
    if name == "StopIteration":
        return StopIteration()
    return errors.with_code(getattr(errors, name, LostError)(text), code)
