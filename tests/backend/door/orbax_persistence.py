"""Saves and restores with Orbax as on Google's own Pathways: hosts write and read, and no contents come here.

`test_persistence` runs it through a door. Its arguments: what to do, and the folder, again and again. It prints a line
before each, and goes on if one fails.
"""

# mypy: ignore-errors
# It is written as users write, and knows nothing of this project.

import sys
import traceback
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from orbax.checkpoint import type_handlers
from orbax.checkpoint._src.metadata import array_metadata_store
from orbax.checkpoint._src.serialization import cloud_pathways_array_handler

# as `pathwaysutils.initialize()` does it where ENABLE_PATHWAYS_PERSISTENCE=1 is set
handler = cloud_pathways_array_handler.CloudPathwaysArrayHandler(array_metadata_store=array_metadata_store.Store())
type_handlers.register_type_handler(jax.Array, handler, override=True)
devices = np.array(jax.devices())
mesh = Mesh(devices.reshape(-1, 2), ("x", "y"))
KINDS = [jnp.bfloat16, jnp.float32, jnp.int8, jnp.uint8, jnp.int16, jnp.uint16, jnp.int32, jnp.uint32]


def on(spec, where=mesh):
    return NamedSharding(where, PartitionSpec(*spec))


def tree(scale=1):
    kinds = {np.dtype(kind).name: (np.arange(64).reshape(8, 8) * scale).astype(kind) for kind in KINDS}
    return {
        "w": jax.device_put(np.arange(96, dtype=np.float32).reshape(8, 12) * scale, on(["x", "y"])),
        "a/b c": {"bias": jax.device_put(jnp.arange(8, dtype=jnp.bfloat16) * scale, on([]))},
        "kinds": {name: jax.device_put(value, on([("x", "y")])) for name, value in kinds.items()},
        "scalar": jax.device_put(jnp.float32(3.5 * scale), on([])),
        "few": jax.device_put(jnp.arange(4, dtype=jnp.int32) * scale, on(["q"], Mesh(devices[1:3], ["q"]))),
        "key": jax.device_put(jax.random.key(7 * scale), on([])),
        "step": 3 * scale,
    }


def wanted(scale):
    return jax.tree.map(lambda x: np.asarray(jax.random.key_data(x) if is_key(x) else x), tree(scale))


def is_key(x):
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def restored(checkpointer, path, scale, where):
    """On another mesh, cut otherwise."""

    def argument(leaf):
        if not isinstance(leaf, jax.Array):
            return ocp.RestoreArgs(restore_type=int)
        spec = {2: ["y", "x"], 1: []}.get(leaf.ndim, [])
        return ocp.ArrayRestoreArgs(sharding=on(spec, where), global_shape=leaf.shape, dtype=leaf.dtype)

    found = checkpointer.restore(path, restore_args=jax.tree.map(argument, tree()))
    for name, leaf in jax.tree_util.tree_leaves_with_path(found):
        if isinstance(leaf, jax.Array):
            assert leaf.sharding.mesh == where, (name, leaf.sharding)
    data = jax.tree.map(lambda x: np.asarray(jax.random.key_data(x) if is_key(x) else x), found)
    jax.tree.map(np.testing.assert_array_equal, data, wanted(scale))
    return found


def lose_a_host(checkpointer, folder):
    """Before the second save is complete. The first stays, and is restored when the host is back."""
    other = Mesh(devices.reshape(2, -1), ("x", "y"))
    checkpointer.save(folder / "1", tree(1))
    many = {f"big{at}": jax.device_put(np.full((1024, 512), at, np.float32), on(["x", "y"])) for at in range(128)}
    given = jax.block_until_ready(tree(2) | many)
    print("saved", flush=True)
    try:
        checkpointer.save(folder / "2", given)
    except Exception as error:
        print("failed", str(error).replace("\n", " "), flush=True)
    print("steps", sorted(path.name for path in folder.iterdir() if path.name.isdigit()), flush=True)
    input()
    restored(checkpointer, folder / "1", 1, other)
    checkpointer.save(folder / "3", tree(3))
    restored(checkpointer, folder / "3", 3, other)
    print("restored", flush=True)


def do(what, folder):
    if what == "async":
        checkpointer = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False))
    else:
        checkpointer = ocp.PyTreeCheckpointer(use_ocdbt=False)
    if what == "killed":
        lose_a_host(checkpointer, folder)
        return
    if what == "restore":
        restored(checkpointer, folder / "1", 1, Mesh(devices.reshape(2, -1), ("x", "y")))
        print("restored", flush=True)
        return
    for scale in (1, 2):
        given = tree(scale)
        checkpointer.save(folder / str(scale), given)
        # training goes on at once, and takes the arrays' memory
        step = jax.jit(lambda x: x * 0 + 1, donate_argnums=0)
        for _ in range(3):
            given["w"] = step(given["w"])
        print("saved", float(given["w"].sum()), flush=True)
    if what == "async":
        checkpointer.wait_until_finished()
    for scale in (1, 2):
        restored(checkpointer, folder / str(scale), scale, Mesh(devices.reshape(2, -1), ("x", "y")))
    print("restored", flush=True)


def main(words):
    failed = 0
    for what, folder in zip(words[::2], words[1::2], strict=True):
        print("--", what, folder, flush=True)
        try:
            do(what, Path(folder))
        except Exception as error:
            failed = 1
            traceback.print_exc()
            print("failed", str(error).replace("\n", " "), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
