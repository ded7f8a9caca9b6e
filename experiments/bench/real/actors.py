"""Measures fig 5's steps with Ray: one driver whose actors form a `jax.distributed` world and run the same function.

`python -m experiments.bench.real.actors HOSTS DEVICES REPEATS FEWER FOLDER` is a process of its own, so that Ray's
settings stay there: loopback only, no dashboard, no usage statistics, and a shutdown however it ends. OpByOp: one
remote call a step and actor, not waited for, with as many outstanding as in the other systems. Chained: like OpByOp,
but each call takes the reference that the previous one returned, and the driver waits only for the last of 128. Fused:
one call runs 128 steps. `real` prints the rows. Ray is in the extra `bench`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backend.admin import Children, end_with_parent

from ..frame import members

MODULE = "experiments.bench.real.actors"
MISSING = "not installed: pip install 'seaway[bench]'"
PATIENCE = 240.0
STEPS = {"OpByOp": 1024, "Chained": 1024, "Fused": 32 * 128}
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_enable_metrics_collection": "0",
}
Rates = dict[str, list[float]]


def installed() -> bool:
    return find_spec("ray") is not None


def rates(hosts: int, devices: int, repeats: int, fewer: int = 1) -> Rates:
    """Steps a second, by kind. fewer: divides the numbers of steps in `STEPS`."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        children = Children(folder)
        out = folder / "said"
        words = [*map(str, (hosts, devices, repeats, fewer)), place]
        try:
            with out.open("wb") as file:
                child = children.start("driver", MODULE, words, SETTINGS, stdout=file)
            try:
                code = child.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"Ray took more than {PATIENCE:g} s: {child.tail()}") from None
        finally:
            children.end_all()
            end_those_in(folder)
        said = members.lines(out)
        if code or not said:
            raise RuntimeError(f"Ray's side ended with {code}: {child.tail()}")
        found: Rates = said[-1]
        return found


def end_those_in(folder: Path) -> None:
    """Kill Ray's own processes that are left. Their command lines contain the folder."""
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and str(folder).encode() in (each / "cmdline").read_bytes():
                os.kill(int(each.name), 9)
        except OSError:
            continue


# --- in the driver's process ------------------------------------------------------------------------------------------


class Member:
    """An actor: one process of the world. A step's value stays here, as on an agent."""

    def __init__(self, rank: int, count: int, address: str) -> None:
        import jax
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        from .real import AXIS, WINDOW, fused, step

        if count > 1:
            jax.distributed.initialize(address, count, rank)
        split: Any = PartitionSpec
        mesh = Mesh(np.array(jax.devices()), (AXIS,))
        zeros = np.zeros(len(jax.devices()), np.float32)
        lies = NamedSharding(mesh, split(AXIS))
        self._value: Any = jax.make_array_from_callback(zeros.shape, lies, lambda index: zeros[index])
        self._under_way: deque[Any] = deque(maxlen=WINDOW)

        def compiled(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
            mapped = jax.shard_map(work, mesh=mesh, in_specs=split(AXIS), out_specs=split(AXIS))
            return jax.jit(mapped).lower(self._value).compile()

        self._works = {"one": compiled(step), "fused": compiled(fused)}

    def call(self, work: str, after: object = None) -> None:
        """Enqueue one computation. `after`: the result of the previous call."""
        self._value = self._works[work](self._value)
        if len(self._under_way) == self._under_way.maxlen:
            self._under_way.popleft().block_until_ready()
        self._under_way.append(self._value)

    def wait(self) -> None:
        self._value.block_until_ready()


def drive(hosts: int, devices: int, repeats: int, fewer: int, folder: str) -> Rates:
    ray: Any = import_module("ray")
    from .real import CHAIN, WINDOW

    ray.init(
        num_cpus=max(hosts, 1), include_dashboard=False, _node_ip_address="127.0.0.1", _temp_dir=folder,
        object_store_memory=100_000_000, log_to_driver=False, configure_logging=False,
    )  # fmt: skip
    try:
        env = {"env_vars": members.environment(devices)}
        kind: Any = ray.remote(num_cpus=1, runtime_env=env)(Member)
        address = members.free_address()
        actors = [kind.remote(rank, hosts, address) for rank in range(hosts)]

        def waited() -> None:
            ray.get([actor.wait.remote() for actor in actors])

        def called(work: str, calls: int) -> None:
            under_way: deque[Any] = deque()
            for _ in range(calls):
                under_way.append([actor.call.remote(work) for actor in actors])
                if len(under_way) == WINDOW:
                    ray.get(under_way.popleft())

        def chained(steps: int) -> None:
            for _ in range(steps // CHAIN):
                last: list[Any] = [None] * hosts
                for _ in range(CHAIN):
                    last = [
                        actor.call.remote("one", after) for actor, after in zip(actors, last, strict=True)
                    ]
                ray.get(last)

        plays: dict[str, Callable[[int], None]] = {
            "OpByOp": lambda steps: called("one", steps),
            "Chained": chained,
            "Fused": lambda steps: called("fused", steps // CHAIN),
        }
        found: Rates = {}
        for name, play in plays.items():
            play(CHAIN)
            waited()
            found[name] = []
            for _ in range(repeats):
                begun = time.perf_counter()
                steps = CHAIN * max(1, STEPS[name] // fewer // CHAIN)
                play(steps)
                waited()
                found[name].append(steps / (time.perf_counter() - begun))
        return found
    finally:
        ray.shutdown()


def medians(found: Rates) -> dict[str, float]:
    return {kind: statistics.median(each) for kind, each in found.items()}


def main(arguments: Sequence[str]) -> None:
    end_with_parent()
    *numbers, folder = arguments
    hosts, devices, repeats, fewer = map(int, numbers)
    driver = import_module(MODULE)  # by this name, so that Ray finds `Member` in the actors' processes
    print(f"\n{json.dumps(driver.drive(hosts, devices, repeats, fewer, folder))}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
