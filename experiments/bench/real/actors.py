"""Measures fig 5's steps with Ray: one driver whose actors form a `jax.distributed` world and run the same function.

The driver is a process of its own, so that Ray's settings stay there: loopback only, no dashboard, no usage statistics,
and a shutdown however it ends. OpByOp: one remote call a step and actor, not waited for, with as many outstanding as in
the other systems. Chained: like OpByOp, but each call takes the reference that the previous one returned, and the
driver waits only for the last of 128. Fused: one call runs 128 steps. `real` prints the rows. Ray is in the extra
`bench`.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..frame import processes
from ..frame.jax_world import JaxWorld

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
    with TemporaryDirectory() as folder:
        try:
            arguments = hosts, devices, repeats, fewer, folder
            found: Rates = processes.answer(drive, *arguments, env=SETTINGS, bound=PATIENCE)
            return found
        finally:
            end_those_in(Path(folder))


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
        import numpy as np

        from .real import WINDOW, fused, step

        world = JaxWorld(address, rank, count)
        self._value: Any = world.array(np.zeros(world.devices, np.float32))
        self._under_way: deque[Any] = deque(maxlen=WINDOW)
        works = {"one": step, "fused": fused}
        self._works = {name: world.compiled(work, self._value) for name, work in works.items()}

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
        env = {"env_vars": processes.environment(devices)}
        kind: Any = ray.remote(num_cpus=1, runtime_env=env)(Member)
        address = processes.free_address()
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
                    last = [actor.call.remote("one", after) for actor, after in zip(actors, last, strict=True)]
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
