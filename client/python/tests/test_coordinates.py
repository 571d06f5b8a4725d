"""Coordinates from a DeviceMesh or Megatron, by the methods these really have."""

from __future__ import annotations

import itertools

import pytest

import millrace


class DeviceMesh:
    """The three methods of torch.distributed.device_mesh.DeviceMesh that are asked."""

    def __init__(self, place, **sizes):
        self.mesh_dim_names = tuple(sizes)
        self._sizes, self._place = list(sizes.values()), place

    def size(self, dim):
        return self._sizes[dim]

    def get_local_rank(self, dim):
        return self._place[dim]


def test_plain_mesh():
    mesh = DeviceMesh((1, 2, 0), pp=2, dp=4, tp=8)
    assert millrace.coordinates_from_mesh(mesh) == {
        "dp_rank": 2, "dp_size": 4, "cp_rank": 0, "cp_size": 1,
        "pp_rank": 1, "pp_size": 2, "tp_rank": 0, "tp_size": 8,
    }  # fmt: skip


def test_hybrid_sharding_counts_every_data_rank_once():
    places = itertools.product(range(2), range(3), range(2))
    found = [
        millrace.coordinates_from_mesh(DeviceMesh(place, dp_replicate=2, dp_shard=3, cp=2))
        for place in places
    ]
    assert [(f["dp_rank"], f["cp_rank"]) for f in found] == list(
        itertools.product(range(6), range(2))
    )
    assert {f["dp_size"] for f in found} == {6}


def test_unknown_dimension():
    with pytest.raises(millrace.UserError, match="'ep'"):
        millrace.coordinates_from_mesh(DeviceMesh((0, 1), dp=2, ep=2))
    assert millrace.coordinates_from_mesh(DeviceMesh((1, 0), dp=2, ep=1))["dp_rank"] == 1


def test_real_device_mesh():
    """One process is one rank: enough to hold the method names."""
    pytest.importorskip("torch", reason="torch is not installed")
    device_mesh = pytest.importorskip("torch.distributed.device_mesh", reason="old torch")
    from torch import distributed

    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = device_mesh.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp_shard", "tp"))
        found = millrace.coordinates_from_mesh(mesh)
    finally:
        distributed.destroy_process_group()
    assert (found["dp_rank"], found["dp_size"], found["tp_size"]) == (0, 1, 1)


class Mpu:
    """megatron.core.parallel_state, as far as it is asked."""

    def __getattr__(self, name):
        axes = ["data", "context", "pipeline_model", "tensor_model"]
        known = {f"get_{axis}_parallel_rank": at for at, axis in enumerate(axes)}
        known |= {f"get_{axis}_parallel_world_size": at + 4 for at, axis in enumerate(axes)}
        return lambda: known[name]


def test_megatron():
    found = millrace.from_megatron(Mpu())
    assert [found[f"{axis}_rank"] for axis in ("dp", "cp", "pp", "tp")] == [0, 1, 2, 3]
    assert [found[f"{axis}_size"] for axis in ("dp", "cp", "pp", "tp")] == [4, 5, 6, 7]


def test_they_are_arguments_of_connect():
    found = millrace.from_megatron(Mpu())
    loader = millrace.connect("localhost:1", **found)
    loader.close()
