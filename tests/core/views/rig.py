"""A client of a world on one slice, its arrays, and views of them."""

from __future__ import annotations

from typing import Any

from core.model.program import Program, Sharding, SliceSpec, Value
from core.model.topology import Cluster, Island
from tests.core.build import Build
from tests.world.script import Handle, RunHandle, Script
from tests.world.world import World

WHOLE = SliceSpec("s", 4)
SPLIT = Sharding(((0,),))
ROWS = Value((8,), "float32", 0, SPLIT)  # two rows on each of four devices
PAIR = Value((2,), "float32")  # as much as one of its shards


def cluster(hosts: int = 2, memory: int = 1 << 30, devices: int = 2) -> Cluster:
    return Cluster((Island(name="i", hosts=hosts, devices_per_host=devices, memory=memory),))


def world(hosts: int = 2, **options: Any) -> World:
    return World(cluster(hosts, options.pop("memory", 1 << 30)), seed=7, **options)


def one(pick: int) -> SliceSpec:
    """One device of the slice."""
    return SliceSpec(f"s[{pick}]", 1, of="s", picks=(pick,))


def program(
    name: str, where: SliceSpec, value: Value, result: Value | None = None, donate: bool = False, temp: int = 0
) -> Program:
    """A computation of one argument."""
    b = Build(name)
    b.slices = [WHOLE, where] if where.of else [where]
    home = len(b.slices) - 1
    at = where.name
    split = "0" if value.sharding.dims else ""
    arg = b.arg(at, *value.shape, split=split, donate=donate)
    out = result or value
    made = b.value(at, *out.shape, split="0" if out.sharding.dims else "")
    ref = b.call(name, at, [arg], [made], donate=(0,) if donate else (), temp=temp)
    assert b.nodes[0].slice == home  # type: ignore[union-attr]
    return b.program(ref)


class Arrays:
    """Programs are registered once each."""

    def __init__(self, a: Script) -> None:
        self.a = a
        self._known: dict[Any, Program] = {}

    def run(self, name: str, where: SliceSpec, arg: Handle | bytes, value: Value, **more: Any) -> RunHandle:
        key = name, where.name, value, tuple(more.items())
        if key not in self._known:
            self._known[key] = program(name, where, value, **more)
        return self.a.submit(self._known[key], arg)

    def whole(self) -> Handle:
        """An array on the whole slice."""
        return self.run("make", WHOLE, bytes(32), ROWS).results[0]

    def pair(self, pick: int) -> Handle:
        """An array on one device."""
        return self.run("pair", one(pick), bytes(8), PAIR).results[0]

    def four(self) -> list[Handle]:
        """An array on each device of the slice."""
        self.whole()
        return [self.pair(pick) for pick in range(4)]

    def joined(self, *pairs: Handle) -> Handle:
        return self.a.view(ROWS, WHOLE, *((pair, 0) for pair in pairs))

    def shard(self, whole: Handle, pick: int) -> Handle:
        return self.a.view(PAIR, one(pick), (whole, pick))


def begun(**options: Any) -> tuple[World, Arrays]:
    """A world, and its client."""
    made = world(**options)
    return made, Arrays(made.client("a"))
