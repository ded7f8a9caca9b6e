"""A member of collective worlds, for `test_pjrt_worlds`. It obeys its standard input: one JSON list on each line."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType

from backend.devices.interface import WorldSpec
from core.model.place import line
from core.model.plan import Layout, Plan
from core.model.program import Arg, Out
from core.model.resharding import Shards
from core.protocol import effects as e

from .pjrt_rig import P, Rig, Work, value

PER_HOST = 1


class Member:
    def __init__(self, host: int) -> None:
        self.host = host
        self.rig = Rig(PER_HOST, join=False)
        self.buffers: dict[str, tuple[int, Layout]] = {}
        self.plans = 0
        self.started: list[int] = []
        self.held: list[Any] = []

    def reform(self, epoch: int, address: str, hosts: list[int]) -> list[int]:
        self.forming(epoch, address, hosts)
        self.rig.wait(e.Reformed, epoch=epoch, patience=60)
        return sorted(self.rig.devices._world.devices)

    def forming(self, epoch: int, address: str, hosts: list[int]) -> None:
        devices = {host: range(host * PER_HOST, (host + 1) * PER_HOST) for host in hosts}
        self.rig.devices.reform(
            e.Reform(epoch, tuple((h, h + 1) for h in hosts), ()), WorldSpec(epoch, address, hosts, self.host, devices)
        )

    def layout(self, hosts: list[int], size: int) -> Layout:
        place, split = line(0, hosts[0] * PER_HOST, len(hosts) * PER_HOST), value((size,), ("x",))
        return Layout(split.shape, split.dtype, place, (place.size,), split.sharding)

    def literal(self, name: str, hosts: list[int], array: list[float]) -> None:
        where = self.layout(hosts, len(array))
        self.buffers[name] = self.rig.literal(where, np.array(array, np.float32)), where

    def psum(self, source: str, target: str, hosts: list[int]) -> list[str]:
        """Compute x + its sum over all devices. Returns the blames, if there are any."""
        seq = self.start(source, target, hosts)
        blame = self.rig.wait(e.Finished, seq=seq, patience=60).blame
        return [] if blame is None else [blame.code, blame.cause]

    def start(self, source: str, target: str, hosts: list[int]) -> int:
        """Enqueue it without waiting."""
        number, held = self.buffers[source]
        plan = self.compiled(self.layout(hosts, held.shape[0]))
        seq, (made,) = self.rig.launch(plan, 0, [number])
        self.buffers[target] = made, plan.slots[plan.results[0]].layout
        self.started.append(seq)
        return seq

    def compiled(self, where: Layout) -> Plan:
        mesh = AbstractMesh((where.place.size,), ("x",), axis_types=(AxisType.Auto,))
        split = value(where.shape, ("x",))

        def body(x: Any) -> Any:
            return x + jax.lax.psum(x.sum(), "x")  # type: ignore[no-untyped-call]

        work = Work((where.place.size,), split)
        shards = jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        work.call("psum", shards, [Arg(0)], [split], [split])
        self.plans += 1
        plan = work.plan(where.place, Out(0), ident=self.plans)
        (said,) = self.rig.compile(plan, work.blobs)
        assert said.blame is None, said
        return plan

    def compile_long(self, hosts: list[int]) -> None:
        """Begin a compilation of a second or two."""
        where = self.layout(hosts, 8 * len(hosts))
        mesh = AbstractMesh((where.place.size,), ("x",), axis_types=(AxisType.Auto,))
        split = value(where.shape, ("x",))

        def body(x: Any) -> Any:
            for number in range(90):
                x = jax.lax.sort(x * number) + jax.lax.psum(x, "x")  # type: ignore[no-untyped-call]
            return x

        work = Work((where.place.size,), split)
        work.call("long", jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")), [Arg(0)], [split], [split])
        self.plans += 1
        plan = work.plan(where.place, Out(0), ident=self.plans)
        self.rig.devices.compile(e.CompileCode(plan.id, 0, ()), plan, work.blobs)

    def compiled_long(self) -> float:
        self.rig.wait(e.CodeReady, patience=60)
        return time.monotonic()

    def backends(self) -> int:
        """The number of backends that are alive in this process, by whatever reference."""
        return sum(type(each).__name__ == "Client" for each in gc.get_objects())

    def hold(self) -> None:
        """Keep this world's backend alive."""
        self.held.append(jax.devices()[0].client)

    def threads(self) -> int:
        return len(os.listdir("/proc/self/task"))

    def read(self, name: str) -> dict[str, list[float]]:
        number, where = self.buffers[name]
        shards = Shards(where)
        return {str(shards.ordinal(index)): part.tolist() for index, part in self.rig.devices.shards(number).items()}

    def usage(self) -> dict[str, int]:
        return dict(self.rig.usage())


def main() -> None:
    member = Member(int(sys.argv[1]))
    for words in sys.stdin:
        what, *arguments = json.loads(words)
        try:
            answer = [getattr(member, what)(*arguments)]
        except Exception as error:
            answer = [None, f"{type(error).__name__}: {error}"]
        print("answer", json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
