"""Unmodified JAX programs on a real cluster: two agents of four CPU devices, a controller, a door, and their ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import seaway as sw
from backend.admin.children import environment
from experiments.bench.frame.deployed import controller_only
from experiments.bench.frame.door_server import Door, Served, local, on_cluster, opened
from seaway.cli.status import table

from ..program_runs import DEVICES, EXAMPLES, PROGRAMS, output, python, typed

CHECKS = "tests.backend.door.checks"
LOSS = re.compile(r"loss ([\d.e-]+)")
PATIENCE = 120.0  # seconds

BASICS = """
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
print(len(jax.devices()), jax.devices()[0].platform)
x = np.arange(4096, dtype=np.float32).reshape(64, 64)
step = jax.jit(lambda x: (x @ x.T).sum() + 1)
mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
there = jax.device_put(x, NamedSharding(mesh, P("x", "y")))
print(np.allclose([float(step(x)), float(step(there))], (x.astype(np.float64) @ x.T).sum(), rtol=1e-5))
take = jax.jit(lambda x: x * 2, donate_argnums=0)
there = take(there)
print(np.array_equal(np.asarray(there), 2 * x), tuple(there.sharding.spec))
other = jax.device_put(there, NamedSharding(jax.sharding.Mesh(np.array(jax.devices())[::-1], "x"), P(None, "x")))
print(np.array_equal(np.asarray(other), 2 * x))
print(np.array_equal(np.asarray(jax.device_put(jax.device_put(x, jax.devices()[1]), jax.devices()[6])), x))
"""

LOOPS = """
import jax, numpy as np, sys
from jax.sharding import NamedSharding, PartitionSpec as P
rows = NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), "x"), P("x"))
x = jax.device_put(np.ones((64, 512), np.float32), rows)

def train_step(x):
    return x + x.mean()

step = jax.jit(train_step)
print("begun", float(step(x)[0, 0]), flush=True)
while True:
    try:
        x = step(x)
        x.block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        print(str(error), flush=True)
        break
sys.stdin.readline()
x = jax.device_put(np.ones((64, 512), np.float32), rows)
print("again", float(step(x)[0, 0]), flush=True)
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with on_cluster(controller=["--metrics-port", "0"], door=["--name", "alice", "--weight", "2"]) as found:
        yield found


@pytest.fixture(scope="module")
def metrics(served: Served) -> str:
    """Where they are."""
    said = served.cluster.controller.process.stdout
    assert said is not None
    found = re.search(r"http://\S+", said.readline().decode())
    assert found is not None
    return found[0]


def until(true: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < end, what
        time.sleep(0.1)
    return found


def is_empty(served: Served) -> bool:
    """Whether nothing of any session is left in the controller."""
    status = served.cluster.status()
    return status["buffers"] == 0 and not status["clients"]


@contextmanager
def running(code: str, door: Door) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment({"TF_CPP_MIN_LOG_LEVEL": "3"} | door.env), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# --- what works -------------------------------------------------------------------------------------------------


def test_a_program_computes_on_all_devices_of_both_hosts_and_leaves_nothing(served: Served) -> None:
    said = output(python("-c", BASICS, env=served.door.env)).splitlines()
    assert said == [f"{DEVICES} cpu", "True", "True ('x', 'y')", "True", "True"]
    until(lambda: is_empty(served), "a program that has ended left something in the controller")


@pytest.mark.full
def test_all_checks_pass_on_a_cluster(served: Served) -> None:
    ended = python("-m", CHECKS, env=served.door.env)
    assert ended.code == 0, f"{ended.out}\n{ended.err[-4000:]}"
    assert ended.out.count(": ok (") >= 28
    until(lambda: is_empty(served), "the checks left something in the controller")


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_examples_lose_on_a_cluster_what_they_lose_here(name: str, served: Served, tmp_path: Path) -> None:
    """Sums over two hosts are made in another order than in one process: the last digits may differ."""
    path = str(EXAMPLES / name)
    here = output(python(path, env=local(DEVICES), folder=tmp_path))
    there = output(python(path, env=served.door.env, folder=tmp_path))
    assert LOSS.sub("", there) == LOSS.sub("", here)
    losses = [float(loss) for loss in LOSS.findall(here)]
    assert len(losses) >= 10
    assert [float(loss) for loss in LOSS.findall(there)] == pytest.approx(losses, rel=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", ["flax_mesh.py", "scan_transformer.py"])
def test_on_one_host_they_lose_the_same_to_the_last_digit(name: str, tmp_path: Path) -> None:
    path = str(EXAMPLES / name)
    here = output(python(path, env=local(DEVICES), folder=tmp_path))
    with on_cluster(1, DEVICES) as found:
        assert output(python(path, env=found.door.env, folder=tmp_path)) == here


@pytest.mark.full
def test_a_session_at_a_terminal_shows_the_same_on_a_cluster(served: Served, tmp_path: Path) -> None:
    assert typed(served.door.env, tmp_path) == typed(local(DEVICES), tmp_path)


# --- what is seen ----------------------------------------------------------------------------------------------


def test_clients_are_seen_by_name_with_their_functions_and_leave_nothing_when_they_are_ended(
    served: Served, metrics: str
) -> None:
    """One is interrupted, one killed."""
    names = ["alice", "alice-2"]
    with running(LOOPS, served.door) as first, running(LOOPS, served.door) as second:
        assert line(first).startswith("begun")
        assert line(second).startswith("begun")
        status = served.cluster.status()
        assert sorted(each["name"] for each in status["clients"]) == names
        assert all(each["programs"] and each["weight"] == 2 for each in status["clients"])
        assert re.findall(r"^\d+ +(\S+) +2 +[1-9]", table(status), re.MULTILINE) == names
        figures = read(metrics)
        for what in ("runs", "programs"):
            found = re.findall(rf'^seaway_client_{what}{{client="\d+",name="(.+)"}} \d', figures, re.MULTILINE)
            assert found == names
        with sw.connect(f"grpc://{served.cluster.address}") as operator:
            trace = operator.trace
        first.send_signal(signal.SIGINT)
        first.wait(PATIENCE)
        until(lambda: len(served.cluster.status()["clients"]) == 1, "an interrupted program is still a client")
    for rows, column in ((trace.runs(), "program"), (trace.gangs(), "step")):
        who = rows[rows[column] == "train_step"]["client"].astype(str)
        assert {each.partition(" (")[0] for each in who} == set(names)  # earlier sessions had these names, too
    until(lambda: is_empty(served), "programs that were ended left something in the controller")


def read(place: str) -> str:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(place, timeout=PATIENCE) as answer:
        found: str = answer.read().decode()
    return found


# --- ends -------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_killed_door_leaves_nothing_in_the_controller() -> None:
    with on_cluster(controller=["--lease", "3"]) as served, running(LOOPS, served.door) as program:
        assert line(program).startswith("begun")
        served.door.child.process.kill()
        assert line(program).startswith("UNAVAILABLE")
        until(lambda: is_empty(served), "a killed door left something in the controller")


@pytest.mark.full
def test_a_lost_host_is_named_and_the_session_goes_on_when_it_is_back() -> None:
    with on_cluster(controller=["--lease", "3"]) as served, running(LOOPS, served.door) as program:
        assert line(program).startswith("begun")
        served.cluster.agents[1].process.kill()
        said = line(program)
        assert said.startswith("DATA_LOSS")
        assert "host" in said
        served.cluster.again(1)
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
        assert line(program) == "again 2.0"


# --- a door that cannot serve ----------------------------------------------------------------------------------


def test_a_program_that_asks_for_devices_when_there_are_none_waits_and_the_log_says_for_what() -> None:
    code = "import jax; print(len(jax.devices()), flush=True)"
    with (
        controller_only(1, ["--devices-per-host", str(DEVICES)]) as cluster,
        opened(DEVICES, ["--connect", cluster.address, "--verbose"]) as door,
        running(code, door) as program,
    ):
        log = until(lambda: "waits for" in door.child.tail() and door.child.tail(), "nothing is said")
        assert re.search(r"\bhosts? 0\b", log)
        cluster.start_agents("cpu", 1, ["--trust-clients"], DEVICES)
        assert line(program) == str(DEVICES)
