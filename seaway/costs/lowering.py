"""Traces a user's JAX function into bytes that another process can compile, for devices that need not exist.

The bytes are `jax.export`'s StableHLO. Arguments and results are flattened first, so that the compiling process needs
none of the user's classes. Donations are numbers of flat arguments.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from ..errors import CostError
from ..specs import trees, whole

Axes = tuple[tuple[str, int, str], ...]
DEVICES = ("/dev/accel0", "/dev/vfio/0")  # where a TPU would be
OURS = ("TPU", "libtpu", "InitGoogle", "Source Location Trace", "common_lib.cc")


class Lowered(msgspec.Struct, frozen=True):
    name: str
    blob: bytes
    axes: Axes  # of the mesh: name, size and type (Auto, Explicit or Manual)
    donated: tuple[int, ...]  # flat arguments
    digest: str  # of the StableHLO without source locations

    @property
    def devices(self) -> int:
        return prod(size for _, size, _ in self.axes)


def _jax() -> Any:
    """JAX, imported late since that takes a second, and untyped since its types differ between versions."""
    import jax

    return jax


def lower(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    platform: str,
    mesh: object = None,
    in_shardings: object = None,
    out_shardings: object = None,
    donate: int | Sequence[int] = (),
    name: str | None = None,
) -> Lowered:
    """Trace `fn(*args)`. `args`: pytrees of arrays or of `jax.ShapeDtypeStruct`s."""
    jax = _jax()
    if not isinstance(args, tuple | list):
        raise CostError(f"args is the tuple of the function's arguments, not a {type(args).__name__}: write (x,)")
    args = tuple(args)
    given = _abstract_mesh(mesh, (args, in_shardings, out_shardings))
    specs = _shardings(in_shardings, args, given, "in_shardings")
    leaves, tree = jax.tree.flatten(args)
    flat = [_described(leaf, spec, given) for leaf, spec in zip(leaves, specs, strict=True)]

    def computation(*flat: Any) -> Any:
        result = fn(*jax.tree.unflatten(tree, flat))
        wanted = _shardings(out_shardings, result, given, "out_shardings")
        return _placed(tuple(jax.tree.leaves(result)), tuple(wanted))

    donated = _donated(donate, args)
    with quiet_start(), jax.sharding.use_abstract_mesh(given):
        jitted = jax.jit(computation, donate_argnums=donated)
        lowered = jitted.trace(*flat).lower(lowering_platforms=(platform,))
        from jax import export

        exported = export.export(jitted, platforms=(platform,))(*flat)
    types = [kind.name for kind in given.axis_types]
    axes = tuple(zip(given.axis_names, given.axis_sizes, types, strict=True))
    digest = hashlib.sha256(repr((axes, donated)).encode() + lowered.as_text().encode()).hexdigest()
    return Lowered(name or _name(fn), bytes(exported.serialize()), axes, donated, digest)


def _placed(leaves: tuple[Any, ...], wanted: tuple[Any, ...]) -> tuple[Any, ...]:
    if all(one is None for one in wanted):
        return leaves
    place: Callable[..., tuple[Any, ...]] = _jax().jit(lambda *leaves: leaves, out_shardings=wanted)
    return place(*leaves)


def _donated(donate: int | Sequence[int], args: Sequence[Any]) -> tuple[int, ...]:
    """The numbers of the flat arguments that belong to donated arguments."""
    donate = (donate,) if isinstance(donate, int) else tuple(donate)
    for index in donate:
        if not 0 <= index < len(args):
            raise CostError(f"donate names argument {index}; there are {len(args)}, the first is 0")
    sizes = [len(_jax().tree.leaves(arg)) for arg in args]
    return tuple(at for index in sorted(donate) for at in range(sum(sizes[:index]), sum(sizes[: index + 1])))


def _name(fn: Callable[..., Any]) -> str:
    while hasattr(fn, "func"):  # functools.partial
        fn = fn.func
    return str(getattr(fn, "__name__", type(fn).__name__))


# --- meshes and shardings as a user writes them, on an abstract mesh without devices ---------------------------


def _abstract_mesh(mesh: object, where: object) -> Any:
    """An abstract mesh from a dictionary of axes or a JAX mesh. If `mesh` is None, from a sharding found in `where`."""
    sharding = _jax().sharding
    if mesh is None:
        mesh = _mesh_in(where)
    if isinstance(mesh, sharding.Mesh):
        return mesh.abstract_mesh
    if isinstance(mesh, sharding.AbstractMesh):
        return mesh
    if isinstance(mesh, Mapping) and mesh and all(map(whole, mesh.values())):
        names = tuple(str(axis) for axis in mesh)
        types = (sharding.AxisType.Auto,) * len(names)  # its default differs between versions of JAX
        return sharding.AbstractMesh(tuple(mesh.values()), names, axis_types=types)
    raise CostError(f"mesh cannot be {mesh!r}; write each axis and its size, as in mesh={{'data': 8, 'model': 4}}")


def _mesh_in(where: object) -> object:
    jax = _jax()
    for leaf in jax.tree.leaves(where):
        one = leaf if isinstance(leaf, jax.sharding.Sharding) else getattr(leaf, "sharding", None)
        if isinstance(one, jax.sharding.NamedSharding) and one.mesh.size > 1:
            return one.mesh
    return {"all": 1}


def _shardings(specs: object, tree: object, mesh: Any, what: str) -> list[Any]:
    """A NamedSharding or None for each leaf of `tree`. A spec in `specs` may stand for a whole subtree."""
    jax = _jax()

    def is_spec(one: object) -> bool:
        return isinstance(one, jax.sharding.PartitionSpec | jax.sharding.Sharding)

    try:
        found = trees.spread(specs, tree, what, is_spec)
    except ValueError as error:
        raise CostError(str(error)) from None
    return [_named(spec, mesh, what) for spec in found]


def _named(spec: object, mesh: Any, what: str) -> Any:
    """The sharding on `mesh` for a spec, or for a sharding on another mesh with these axes."""
    sharding = _jax().sharding
    if spec is None:
        return None
    if isinstance(spec, sharding.NamedSharding):
        spec = spec.spec
    if not isinstance(spec, sharding.PartitionSpec):
        raise CostError(f"{what} holds {spec!r}; write PartitionSpecs, and the mesh as mesh={{'axis': size}}")
    for part in spec:
        for axis in part if isinstance(part, tuple) else (part,):
            if isinstance(axis, str) and axis not in mesh.axis_names:
                raise CostError(f"{what} names the axis {axis!r}; the mesh has {', '.join(mesh.axis_names)}")
    return sharding.NamedSharding(mesh, spec)


def _described(leaf: Any, sharding: Any, mesh: Any) -> Any:
    """An argument's shape, type and sharding: the given sharding, or else its own, or else replicated."""
    jax = _jax()
    own = getattr(leaf, "sharding", None)
    if sharding is None and isinstance(own, jax.sharding.NamedSharding):
        sharding = _named(own, mesh, "an argument")
    if sharding is None:
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        leaf = jax.eval_shape(lambda one: one, leaf)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


# --- libtpu says nothing ---------------------------------------------------------------------------------

# JAX looks for devices when it first lowers anything. If libtpu is installed only to compile, it then complains on the
# process's stderr that there is no TPU. If there is a TPU, or JAX has started already, nothing is changed here.


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Let JAX start without libtpu's lines. Other lines printed meanwhile are printed afterwards."""
    if importlib.util.find_spec("libtpu") is None or any(Path(path).exists() for path in DEVICES) or _started():
        yield
        return
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    with tempfile.TemporaryFile() as printed:
        sys.stderr.flush()
        own = os.dup(2)
        os.dup2(printed.fileno(), 2)
        try:
            import jax

            jax.devices()
        finally:
            os.dup2(own, 2)
            os.close(own)
            printed.seek(0)
            for line in printed.read().decode(errors="replace").splitlines():
                if not any(word in line for word in OURS):
                    print(line, file=sys.stderr)
    yield


def _started() -> bool:
    """Whether JAX has looked for devices already."""
    try:
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:  # another version of JAX: a few lines on stderr are better than an error
        return True
    return bool(backends_are_initialized())
