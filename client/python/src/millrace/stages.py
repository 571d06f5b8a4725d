"""Which of a batch's tensors are those of some pipeline stages alone, by output format.

A rank gets the tensors of its own stage. These names tell it whether one that its batches lack is
another stage's, or none at all. It knows nothing of what a tensor holds: docs/bytes.md says that,
and the service makes them by the same table.
"""

from __future__ import annotations

from millrace import messages

# Those of the first stage, and of the last. All others every stage has.
FIRST: dict[str, tuple[str, ...]] = {
    "megatron": ("tokens", "position_ids"),
    "megatron-thd": ("tokens", "position_ids"),
    "hf": ("input_ids", "position_ids"),
    "torchtitan": (),
    "jax": (),
}
LAST: dict[str, tuple[str, ...]] = {
    "megatron": ("labels", "loss_mask"),
    "megatron-thd": ("labels", "loss_mask"),
    "hf": ("labels", "shift_labels"),
    "torchtitan": (),
    "jax": (),
}

# Of those, the ones that only jobs with context parallelism have.
IF_CP = ("shift_labels",)


def elsewhere(name: str, mesh: messages.Mesh, stage: int) -> tuple[str, ...] | None:
    """Returns the tensors of a format that other stages have; None for a format not known here."""
    if mesh.pp <= 1:
        return ()
    if name not in FIRST:
        return None
    first = FIRST[name] if stage > 0 else ()
    last = LAST[name] if stage < mesh.pp - 1 else ()
    return tuple(one for one in first + last if mesh.cp > 1 or one not in IF_CP)
