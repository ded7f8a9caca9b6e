"""A host of real devices without an agent: core lowers plans, tests give commands and await events by name."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from backend.contents import shard_io
from backend.devices.interface import WorldSpec
from backend.pjrt import PjrtDevices
from core.compile import lower
from core.model.place import Place, line
from core.model.plan import Code, Gang, Layout, Plan
from core.model.program import Arg, Computation, Node, Out, Program, Sharding, SliceSpec, Value
from core.model.resharding import Hosts, Shards
from core.protocol import effects as e
from tests.core.model.test_resharding import Alike

P: Any = PartitionSpec
PATIENCE = 120.0
PLATFORMS = ("cpu", "cuda", "tpu")
AXES = "xyz"


def sharding(dims: Sequence[str]) -> Sharding:
    """("x", "", "yz"): the mesh axes that split each dimension."""
    return Sharding(tuple(tuple(map(AXES.index, axes)) for axes in dims)) if any(dims) else Sharding()


def value(shape: tuple[int, ...], dims: Sequence[str] = (), dtype: str = "float32") -> Value:
    return Value(shape, dtype, 0, sharding(dims))


def blob(
    fn: Callable[..., Any], mesh: tuple[int, ...], inputs: Sequence[Value], outputs: Sequence[Value] | None
) -> bytes:
    """Code as a client exports it: traced for devices that it does not have."""
    names = tuple(AXES[: len(mesh)])
    abstract = AbstractMesh(mesh, names, axis_types=(AxisType.Auto,) * len(mesh))

    def lies(each: Value) -> Any:
        return NamedSharding(abstract, P(*(tuple(names[axis] for axis in axes) for axes in each.sharding.dims)))

    shape: Any = jax.ShapeDtypeStruct
    looks = [shape(each.shape, dtype_of(each.dtype), sharding=lies(each)) for each in inputs]
    outs: Any = None if outputs is None else tuple(map(lies, outputs))
    outs = outs[0] if outs and len(outs) == 1 else outs
    made = export.export(jax.jit(fn, out_shardings=outs), platforms=PLATFORMS)(*looks)
    return bytes(made.serialize())


def dtype_of(name: str) -> Any:
    return jax.random.key(0).dtype if name == "key<fry>" else jnp.dtype(name)


class Work:
    """One program of calls in a row. Call i takes the arguments and results that `reads` names."""

    def __init__(self, mesh: tuple[int, ...], *args: Value) -> None:
        self.mesh, self.args = mesh, args
        self.nodes: list[Node] = []
        self.computations: list[Computation] = []
        self.blobs: dict[str, bytes] = {}

    def call(
        self, name: str, fn: Callable[..., Any] | None, reads: Sequence[Any], takes: Sequence[Value],
        makes: Sequence[Value], *, donate: tuple[int, ...] = (), irregular: bool = False, exported: bytes = b"",
    ) -> Out:  # fmt: skip
        """Add a call and return its first output. Without `fn` it is synthetic, unless it was `exported` before."""
        code = exported or (b"" if fn is None else blob(fn, self.mesh, takes, None if irregular else makes))
        name_of = sha256(code).hexdigest() if code else ""
        self.blobs[name_of] = code
        self.computations.append(Computation(name, name_of or name, 1000, code=name_of))
        number = len(self.nodes)
        self.nodes.append(Node(name, number, 0, tuple(reads), tuple(takes), tuple(makes), donate, irregular))
        return Out(number)

    def plan(self, place: Place, *results: Arg | Out, ident: int = 1) -> Plan:
        slices = (SliceSpec("all", place.size, self.mesh),)
        program = Program("test", slices, tuple(self.computations), self.args, tuple(self.nodes), tuple(results))
        layouts = [Layout(v.shape, v.dtype, place, self.mesh, v.sharding) for v in self.args]
        return lower(program, [place], layouts, ident=ident)


class Rig:
    def __init__(self, devices_per_host: int, *, join: bool = True, **options: Any) -> None:
        self.events: queue.Queue[Any] = queue.Queue()
        self.seen: list[Any] = []
        self.devices = PjrtDevices(**options)
        self.devices.post = self.events.put
        self.hosts: Hosts = Alike(devices_per_host)
        self.devices.hosts = self.hosts
        self.devices.failed = lambda error: self.events.put(error)
        self.place = line(0, 0, devices_per_host)
        self._seq, self._buffer = 0, 1000
        if join:
            world = WorldSpec(0, "", [0], 0, {0: range(devices_per_host)})
            self.devices.reform(e.Reform(0, ((0, 1),), ()), world)
            self.wait(e.Reformed)

    def wait(self, kind: type, patience: float = PATIENCE, **fields: Any) -> Any:
        """The next event of this kind with these fields; other events are kept for later."""

        def fits(event: Any) -> bool:
            return isinstance(event, kind) and all(getattr(event, k) == v for k, v in fields.items())

        for event in self.seen:
            if fits(event):
                self.seen.remove(event)
                return event
        end = time.monotonic() + patience
        while True:
            event = self.events.get(timeout=max(0.001, end - time.monotonic()))
            if isinstance(event, BaseException):
                raise event
            if fits(event):
                return event
            self.seen.append(event)

    # --- commands -------------------------------------------------------------------------------------------

    def seq(self) -> int:
        self._seq += 1
        return self._seq

    def buffer(self) -> int:
        self._buffer += 1
        return self._buffer

    def compile(self, plan: Plan, blobs: dict[str, bytes]) -> list[e.CodeReady]:
        for code in range(len(plan.codes)):
            self.devices.compile(e.CompileCode(plan.id, code, ()), plan, blobs)
        return [self.wait(e.CodeReady, plan=plan.id, code=code) for code in range(len(plan.codes))]

    def ready(self, work: Work, *results: Any, **options: Any) -> Plan:
        plan = work.plan(self.place, *results, **options)
        assert [said.blame for said in self.compile(plan, work.blobs)] == [None] * len(plan.codes)
        return plan

    def literal(self, layout: Layout, array: Any) -> int:
        number = self.buffer()
        array = np.asarray(array)
        assert array.shape == layout.shape
        contents = np.ascontiguousarray(array).tobytes()
        self.devices.make(e.MakeBuffer(number, layout, contents, ()))
        return number

    def received(self, layout: Layout, array: Any) -> int:
        """Make a buffer with contents that came from another host."""
        number = self.buffer()
        self.devices.make(e.MakeBuffer(number, layout, None, ()))
        shards = {}
        for index, part in shard_io.cut(layout, np.asarray(array)).items():
            shards[index] = shard_io.empty(part.shape, layout.dtype)
            shards[index][...] = part
        self.devices.fill(number, layout, shards)
        return number

    def launch(
        self, plan: Plan, step: int, inputs: Sequence[int], *, placeholders: bool = False, donate: bool = True,
        sizes: tuple[int, ...] = (),
    ) -> tuple[int, tuple[int, ...]]:  # fmt: skip
        """Launch, and return seq and outputs."""
        gang = plan.steps[step]
        assert isinstance(gang, Gang)
        seq, outputs = self.seq(), tuple(self.buffer() for _ in gang.outputs)
        donated = tuple(inputs[gang.inputs.index(slot)] for slot in gang.donated) if donate else ()
        self.devices.launch(e.Launch(seq, 1, step, tuple(inputs), outputs, donated, sizes, placeholders, ()), plan)
        return seq, outputs

    def run(self, plan: Plan, *arguments: int) -> list[int]:
        """Launch all gangs of a plan, without waiting. Return the buffers of the results."""
        known = dict(enumerate(arguments))
        for step, gang in enumerate(plan.steps):
            assert isinstance(gang, Gang)
            _, outputs = self.launch(plan, step, [known[slot] for slot in gang.inputs])
            known.update(zip(gang.outputs, outputs, strict=True))
        return [known[slot] for slot in plan.results]

    def usage(self) -> dict[str, int]:
        devices = self.devices
        store = devices._store
        return {
            "buffers": len(store), "bytes": max(store.bytes.values(), default=0), "spilled_bytes": store.spilled,
            "disk_bytes": store.on_disk,
            "outstanding": devices._completions.outstanding, "held": devices._launcher.held,
            "compiled": devices._codes.compiled,
        }  # fmt: skip

    def settle(self) -> None:
        """Wait until the enqueueing thread has carried out all commands."""
        self.devices._line.ask(lambda: None)

    def array(self, number: int, layout: Layout) -> Any:
        """The contents of a buffer of which this host has all shards."""
        made = shard_io.empty(layout.shape, layout.dtype)
        for index, part in self.devices.shards(number).items():
            made[shard_io.box_of(Shards(layout), index)] = part
        return made

    def close(self) -> None:
        self.devices.close()


__all__ = ["AXES", "Arg", "Code", "Out", "P", "Rig", "Work", "blob", "sharding", "value"]
