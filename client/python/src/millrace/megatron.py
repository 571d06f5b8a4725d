"""Packed batches for Megatron-LM's sequence packing (``output.format: megatron-thd``).

    iterator, microbatches, tokens, squares = millrace.megatron.wrap_data_iterator(
        loader, all_reduce=lambda numbers: all_reduce_over_data_parallel_ranks(numbers)
    )

stands where Megatron's own wrap_data_iterator packs samples at the start of a step:
here they are packed already. Megatron-LM cuts for context parallelism itself, so the
job has ``cp_slicing: none``, or ``batch.context_split``, and then all ranks of dp x cp get
slices of their own, with ``local_cp_size`` beside them. Only the ranks that fetch call it
(of each tensor-parallel group the first); the others get the numbers by Megatron's own
broadcast.

    iterator = millrace.megatron.data_iterator(loader)

is for padded batches (``output.format: megatron``), which Megatron-LM takes from its own
data loaders; it looks whether all ranks will learn where documents end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from millrace.config import Mesh
from millrace.errors import UserError
from millrace.loader import Loader
from millrace.receive import writable
from millrace.state import State, StateNames

__all__ = ["Batches", "Step", "data_iterator", "wrap_data_iterator"]

FORMAT = "megatron-thd"
PADDED = "megatron"
MASKING = "dataloader_inter_document_masking"  # of Megatron-LM's arguments


class Step(NamedTuple):
    """What Megatron wants to know of a step. Documents count without their padding."""

    iterator: Iterator[dict[str, Any]]  # of the step's microbatches, as torch tensors
    num_microbatches: int
    seqlen_sum: float  # over all documents of the global batch
    seqlen_squared_sum: float


def wrap_data_iterator(
    loader: Loader, all_reduce: Callable[[list[float]], list[float]] | None = None
) -> Step:
    """Returns an iterator over the next step's microbatches and its sums for counting FLOPs.

    all_reduce: adds a list of numbers over all data-parallel ranks and returns the sums;
        with context_split over all ranks of dp x cp. Leave it out with one rank; with more,
        the sums would be those of this rank.
    Raises StopIteration at the end of data, TopologyChanged where it goes on for ranks of
    another mesh: on all ranks alike.
    """
    if loader.format != FORMAT:
        raise UserError(f"the job has output.format {loader.format}: write {FORMAT}")
    if loader.tensors:
        raise UserError(
            f"the loader has tensors={list(loader.tensors)!r}, and Megatron-LM and these sums take "
            "all of a packed batch: leave tensors out of connect()"
        )
    if loader.mesh.dp > 1 and all_reduce is None:
        raise UserError(f"the job has dp={loader.mesh.dp}: give all_reduce= over its ranks")
    microbatches, sharing = loader.upcoming(), loader.sharing()
    if not microbatches:
        raise StopIteration
    if any(sharing) and loader.mesh.cp > 1 and all_reduce is None:
        raise UserError(
            f"the job has batch.context_split and cp={loader.mesh.cp}: "
            "give all_reduce= over all ranks of dp x cp"
        )
    # In the middle of a step, after a resume, what was returned before is left out.
    microbatches, sharing = microbatches[loader.position[1] :], sharing[loader.position[1] :]
    sums = [0.0, 0.0]
    for rows, ranks in zip(microbatches, sharing):
        lengths = [s.length for row in rows for s in row.segments]
        # Each of the ranks that share a row, a power of two, counts its part of it.
        sums[0] += sum(lengths) / max(ranks, 1)
        sums[1] += sum(n * n for n in lengths) / max(ranks, 1)
    if all_reduce is not None:
        sums = list(all_reduce(sums))
    return Step(_tensors(loader, len(microbatches)), len(microbatches), *sums)


def _tensors(loader: Loader, count: int) -> Iterator[dict[str, Any]]:
    import torch

    for _ in range(count):
        yield {key: torch.from_numpy(writable(value)) for key, value in next(loader).items()}


class Batches(StateNames):
    """The microbatches of a job of format ``megatron``, as tensors; see data_iterator().

    Its state is the loader's, under Megatron-LM's name, save_state(), too. After LostError
    next() may be called again.
    """

    def __init__(self, loader: Loader, args: Any) -> None:
        self._loader, self._args = loader, args

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        import torch

        batch = next(self._loader)
        if "cu_seqlens" in batch:
            _check_masking(self._loader.mesh, self._args)
        return {key: torch.from_numpy(writable(value)) for key, value in batch.items()}

    def state_dict(self) -> State:
        """Returns the state after the last microbatch returned, the same on all ranks."""
        return self._loader.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Goes on after that state."""
        self._loader.load_state_dict(state)


def data_iterator(loader: Loader, args: Any = None) -> Batches:
    """Returns an iterator over the microbatches of a job of format ``megatron``, as tensors.

    args: Megatron-LM's arguments; default those of megatron.training.get_args().

    Its next() raises UserError, before the first microbatch, if these have bounds of documents
    (``cu_seqlens``) that not all ranks would get: with tensor parallelism, or more than two
    pipeline stages, Megatron-LM passes them on only if it knows of any.
    """
    if loader.format != PADDED:
        raise UserError(f"the job has output.format {loader.format}: write {PADDED}")
    return Batches(loader, _args() if args is None else args)


def _args() -> Any:
    try:
        from megatron.training import get_args
    except ImportError:
        raise UserError("Megatron-LM is not installed here: give args=") from None
    return get_args()


def _check_masking(mesh: Mesh, args: Any) -> None:
    """Raises UserError if some ranks would see no bounds, and others flatten by them."""
    alike = mesh.tp == 1 and mesh.pp <= 2
    if alike or getattr(args, MASKING, False):
        return
    option = "--" + MASKING.replace("_", "-")
    old = "" if hasattr(args, MASKING) else " (this Megatron-LM does not know it: update it)"
    raise UserError(
        f"the job's rows are packed, and its mesh has tp={mesh.tp} and pp={mesh.pp}: without "
        f"{option} the first rank of each tensor-parallel group masks by documents and the others "
        f"do not. Start Megatron-LM with {option}{old}, or write batch.packing: false"
    )
