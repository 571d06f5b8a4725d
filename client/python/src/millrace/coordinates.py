"""A rank's coordinates, read from the trainer's own idea of its mesh.

Nothing is imported: the objects come from PyTorch or Megatron and are only asked.
"""

from __future__ import annotations

import math
from typing import Any

from millrace.config import whole
from millrace.errors import UserError

# Names of mesh dimensions, outermost first, that make up each axis. Hybrid
# sharding splits data parallelism in two: both parts together count the rank.
DIMENSIONS = {
    "dp": ("dp", "dp_replicate", "dp_shard"),
    "cp": ("cp",),
    "pp": ("pp",),
    "tp": ("tp",),
}


def coordinates_from_mesh(device_mesh: Any) -> dict[str, int]:
    """Returns connect()'s rank and size arguments for a torch DeviceMesh.

    The mesh's dimensions are called dp (or dp_replicate and dp_shard), cp, pp, tp.
    """
    names = tuple(device_mesh.mesh_dim_names or ())
    known = [name for parts in DIMENSIONS.values() for name in parts]
    for at, name in enumerate(names):
        if name not in known and device_mesh.size(at) > 1:
            raise UserError(f"mesh dimension {name!r} is unknown: valid are {', '.join(known)}")
    found: dict[str, int] = {}
    for axis, parts in DIMENSIONS.items():
        rank, size = 0, 1
        for part in parts:
            if part in names:
                at = names.index(part)
                rank = rank * device_mesh.size(at) + device_mesh.get_local_rank(at)
                size *= device_mesh.size(at)
        found[f"{axis}_rank"], found[f"{axis}_size"] = rank, size
    return found


def from_megatron(mpu: Any) -> dict[str, int]:
    """Returns connect()'s rank and size arguments for megatron.core's parallel_state."""
    return {
        "dp_rank": mpu.get_data_parallel_rank(),
        "dp_size": mpu.get_data_parallel_world_size(),
        "cp_rank": mpu.get_context_parallel_rank(),
        "cp_size": mpu.get_context_parallel_world_size(),
        "pp_rank": mpu.get_pipeline_model_parallel_rank(),
        "pp_size": mpu.get_pipeline_model_parallel_world_size(),
        "tp_rank": mpu.get_tensor_model_parallel_rank(),
        "tp_size": mpu.get_tensor_model_parallel_world_size(),
    }


def coordinates_of(rank: int, sizes: dict[str, int], strides: dict[str, int]) -> dict[str, int]:
    """Returns the index of a global rank on each axis.

    A rank's number is the sum of its indices times the strides. Raises UserError if there is
    no such rank.
    """
    rank, world = whole("rank", rank), math.prod(sizes.values())
    if not 0 <= rank < world:
        raise UserError(f"rank {rank} is outside the mesh: its ranks are 0 to {world - 1}")
    return {axis: rank // strides[axis] % size if size > 1 else 0 for axis, size in sizes.items()}
