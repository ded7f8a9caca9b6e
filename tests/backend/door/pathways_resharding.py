"""Reshards with pathwaysutils as one would on Google's own Pathways, and compares each shard with numpy's.

`test_pathways_resharding` runs it through a door. Its argument: of how many of the 441 pairs of shardings it takes one.
"""

# mypy: ignore-errors
# It is written as users write, and knows nothing of this project.

import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pathwaysutils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from pathwaysutils import reshard
from pathwaysutils.experimental import concatenate_by_mesh_axis, split_by_mesh_axis
from pathwaysutils.experimental import reshard as sidechannel

SPECS = [(), ("x",), ("y",), ("x", "y"), ("y", "x"), (("x", "y"),), (None, ("y", "x"))]
ORDER = [6, 1, 4, 3, 0, 7, 2, 5]


def check(array, sharding, wanted):
    assert array.sharding == sharding, array.sharding
    parts = sharding.devices_indices_map(wanted.shape)
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), wanted[parts[shard.device]])


def check_pairs(shardings, every):
    wanted = np.arange(32 * 16, dtype=np.float32).reshape(32, 16)
    pairs = list(itertools.product(shardings, repeat=2))[::every]
    for number, (source, target) in enumerate(pairs):
        if number % 20 == 0:
            print("so far", number, flush=True)
        array = jax.device_put(wanted, source)
        check(reshard.reshard(array, target), target, wanted)
        check(sidechannel.reshard(array, target), target, wanted)
        through = sidechannel.sidechannel_reshard_with_intermediate_sharding(array, source, target)
        check(through, target, wanted)
        check(array, source, wanted)
    return len(pairs)


def check_trees(one, other):
    """Many arrays at once, on disjoint devices, donated; the plan of the second time is that of the first."""
    kinds = [jnp.bfloat16, jnp.int8, jnp.bool_, jnp.float32, jnp.complex64]
    wanted = {np.dtype(kind).name: (np.arange(64).reshape(8, 8) % 2).astype(kind) for kind in kinds}
    for move in (reshard.reshard, sidechannel.reshard, sidechannel.reshard):
        kept = {"cache_resharding_plans": True} if move is sidechannel.reshard else {}
        arrays = jax.device_put(wanted, NamedSharding(one, PartitionSpec("x")))
        moved = move(arrays, NamedSharding(other, PartitionSpec(None, "x")), donate=True, **kept)
        assert all(each.is_deleted() for each in jax.tree.leaves(arrays))
        for name, array in moved.items():
            check(array, NamedSharding(other, PartitionSpec(None, "x")), wanted[name])
        doubled = jax.jit(lambda each: each + each)(moved["float32"])
        back = NamedSharding(one, PartitionSpec("x"))
        check(move(doubled, back), back, 2 * wanted["float32"])
    return len(wanted)


def check_axes(mesh):
    wanted = np.arange(64, dtype=np.float32).reshape(8, 8)
    array = jax.device_put(wanted, NamedSharding(mesh, PartitionSpec("x", "y")))
    parts = split_by_mesh_axis.split_by_mesh_axis(array, "x")
    assert [part.shape for part in parts] == [(2, 8)] * 4
    for at, part in enumerate(parts):
        np.testing.assert_array_equal(np.asarray(part), wanted[2 * at : 2 * at + 2])
    whole = concatenate_by_mesh_axis.concatenate_by_mesh_axis(parts, "x")
    np.testing.assert_array_equal(np.asarray(whole), wanted)
    return len(parts)


if __name__ == "__main__":
    pathwaysutils.initialize()
    devices = np.array(jax.devices())
    meshes = [devices[:4].reshape(2, 2), devices.reshape(4, 2), devices[ORDER].reshape(2, 4)]
    meshes = [Mesh(each, ("x", "y")) for each in meshes]
    shardings = [NamedSharding(mesh, PartitionSpec(*spec)) for mesh in meshes for spec in SPECS]
    print("pairs", check_pairs(shardings, int(sys.argv[1])), flush=True)
    print("trees", check_trees(Mesh(devices[:4], ("x",)), Mesh(devices[4:], ("x",))), flush=True)
    print("axes", check_axes(meshes[1]), flush=True)
