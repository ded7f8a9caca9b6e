"""Two unmodified JAX programs and a native client share the devices of one cluster, by weights 1:2:1.

`python -m experiments.bench shares [--seconds 10]`. The cluster has two agents of four CPU devices and the policy
`stride`. Each JAX program has a door of its own, which says its weight; all three call the same function on all
devices, a few calls ahead. A share is that of the calls that ended while all three were calling, from when the costs of
their programs had been measured.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backend.admin import Children

from ..frame import options, processes
from ..frame.deployed import deployed
from ..frame.door_server import opened
from ..frame.table import Table

STARTED, MEASURED = 20.0, 12.0  # seconds, in which all have begun; and then, in which costs are measured
FRESH = 6.0  # seconds after which a session asks anew what computations took
AHEAD = 8  # calls of each client that have not ended
SIZE, TURNS = 256, 24  # of a matrix, and how often a call multiplies it
WEIGHTS = {"jax one": 1, "jax two": 2, "native": 1}
BOUND = 3.0  # percent that a share may differ from what its weight says


def work(x: Any) -> Any:
    import jax

    return jax.lax.fori_loop(0, TURNS, lambda _, y: jax.numpy.tanh(y @ y), x)


def calling(call: Callable[[], Any], wait: Callable[[Any], None], begin: float, end: float) -> list[float]:
    """When calls ended, by the machine's clock, from `begin` to `end`."""
    ahead: deque[Any] = deque()
    wait(call())
    time.sleep(max(0.0, begin - time.time()))
    ended = []
    while time.time() < end:
        while len(ahead) < AHEAD:
            ahead.append(call())
        wait(ahead.popleft())
        ended.append(time.time())
    for each in ahead:
        wait(each)
    return ended


def jax_program(begin: float, end: float) -> list[float]:
    """Nothing here is ours: the environment chooses the devices."""
    import jax
    import numpy as np

    sharding: Any = jax.sharding
    devices = jax.devices()
    rows = sharding.NamedSharding(sharding.Mesh(np.array(devices), "x"), sharding.PartitionSpec("x"))
    x = jax.device_put(np.zeros((len(devices), SIZE, SIZE), np.float32), rows)
    step = jax.jit(work)
    return calling(lambda: step(x), lambda y: y.block_until_ready(), begin, end)


def native_client(address: str, devices: int, begin: float, end: float) -> list[float]:
    import numpy as np

    import seaway as sw

    home = sw.slice(devices=devices)
    with sw.connect(f"grpc://{address}", client="native"):
        x = sw.put(np.zeros((devices, SIZE, SIZE), np.float32), home, home.sharding("x"))
        for _ in range(5):  # what these take is the cost of those below
            sw.jit(work, devices=home, out_shardings=home.sharding("x"))(x).block_until_ready()
        time.sleep(FRESH)
        step = sw.jit(work, devices=home, out_shardings=home.sharding("x"))
        return calling(lambda: step(x), lambda y: y.block_until_ready(), begin, end)


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("shares", __doc__)
    parser.number("--seconds", 10, "during which shares are counted")
    chosen = parser.read(arguments)
    counts = shared(chosen.seconds)
    table = Table("client <12", "weight >8", "calls >8", "share >9.1f%", "of its weight >15.1f%", "  <8")
    table.begin()
    whole, weights = sum(counts.values()), sum(WEIGHTS.values())
    for name, count in counts.items():
        share, due = 100 * count / whole, 100 * WEIGHTS[name] / weights
        verdict = "" if abs(share - due) <= BOUND else "  MISSED"
        table.row(name, WEIGHTS[name], count, share, due, verdict)


def shared(seconds: float) -> dict[str, int]:
    """Calls of each client that ended in this time."""
    with ExitStack() as stack:
        cluster = stack.enter_context(
            deployed(
                2, platform="cpu", devices=4, options=["--trust-clients"],
                controller=["--devices-per-host", "4", "--policy", "stride"],
            )
        )  # fmt: skip
        doors = [
            stack.enter_context(
                opened(8, ["--connect", cluster.address, "--name", name.replace(" ", "-"), "--weight", str(weight)])
            )
            for name, weight in WEIGHTS.items()
            if name != "native"
        ]  # fmt: skip
        children = Children(Path(stack.enter_context(TemporaryDirectory())))
        stack.callback(children.end_all)
        begin = time.time() + STARTED
        end = begin + MEASURED + seconds + 2
        started = [
            processes.start(children, jax_program, begin, end, env=door.env | {"TF_CPP_MIN_LOG_LEVEL": "3"})
            for door in doors
        ]
        started.append(
            processes.start(
                children, native_client, cluster.address, 8, begin, end, env={"JAX_PLATFORMS": "cpu"}
            )
        )
        said = [processes.heard(each) for each in started]
    low, high = begin + MEASURED, begin + MEASURED + seconds
    return {name: sum(low <= at < high for at in ended) for name, ended in zip(WEIGHTS, said, strict=True)}
