"""A host that is slow, and a crash meanwhile, under a JAX program that comes through a door: each call ends, with its
result or with an error that names what was lost; what is compiled just then waits for the host. The program goes on
when the host is back."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from experiments.bench.frame.deployed import Deployed
from experiments.bench.frame.door_server import on_cluster

from .cluster.test_cluster_ends import LEASE, PARTS
from .jax_programs import await_nothing_held, held, program, until

STOPPED, RUNS = 0.2, 0.05  # seconds: so it has a fifth of its time
CALLS = (
    PARTS
    + """
say(float(step(held[1])[0, 0]))
heard()
double = None
if sys.argv[2] == "warm":
    double = (step(held[2]) * 2).block_until_ready()
say("begun")
lost = ""
while not lost:
    try:
        x = step(held[2]) * 2
        found = float(x[0, 0]), float(x[-1, -1])
        if found != (8.0, 8.0):
            lost = f"wrong: {found}"
    except jax.errors.JaxRuntimeError as error:
        lost = str(error)
say(lost)
heard()
while True:
    try:
        x = jax.device_put(np.full((64, 512), 7, np.float32), rows)
        say("again", float(step(x)[0, 0]))
        break
    except jax.errors.JaxRuntimeError as error:
        say("not yet:", str(error))
del x, held, double
say("over")
heard()
"""
)


@contextmanager
def slow(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The process stands still again and again, each time for less than a lease."""
    over = threading.Event()

    def pulse() -> None:
        while not over.wait(RUNS):
            process.send_signal(signal.SIGSTOP)
            over.wait(STOPPED)
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=pulse)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def connected(cluster: Deployed, host: int) -> bool:
    (island,) = cluster.status()["islands"]
    return bool(island["hosts"][host]["connected"])


@pytest.mark.full
@pytest.mark.parametrize(
    ("warm", "crashed"), [("warm", 1), ("warm", 0), ("cold", 1)],
    ids=["a call, and the other host", "a call, and the slow host", "a compilation, and the other host"],
)  # fmt: skip
def test_a_crash_beside_a_slow_host_ends_calls_by_name_and_the_program_goes_on(warm: str, crashed: int) -> None:
    with on_cluster(controller=LEASE) as (cluster, door), program(CALLS, door.env, "1", warm) as found:
        assert found.line() == "2.0", found.errors()
        with slow(cluster.agents[0].process):
            found.go_on()
            assert found.line() == "begun", found.errors()
            cluster.agents[crashed].process.kill()
            until(lambda: not connected(cluster, crashed), "the controller does not notice")
            cluster.again(crashed)
            said = found.line()
            assert re.match(
                rf"DATA_LOSS: \[host-lost\] (host {crashed} of island 'i0' was lost|hosts 0 and 1 lost each other)",
                said,
            ), said
            found.go_on()
            assert found.until("again") == "again 14.0"
        assert found.line() == "over"
        until(lambda: not held(cluster)["buffers"], lambda: f"kept for nobody: {held(cluster)}")
        found.go_on()
        assert found.process.wait(60) == 0
        await_nothing_held(cluster)
