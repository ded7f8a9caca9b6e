"""Unmodified JAX programs on a real cluster: two agents of four CPU devices, a controller, a door, and their ends."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import seaway as sw
from experiments.bench.frame import processes
from experiments.bench.frame.deployed import controller_only
from experiments.bench.frame.door_server import Served, on_cluster, opened
from seaway.cli.status import table

from ...server.test_operations import _get
from ..jax_programs import await_nothing_held, program, until
from ..program_runs import DEVICES, EXAMPLES, MPMD_CLIENT, MPMD_RAN, PROGRAMS, output, python

CHECKS = "tests.backend.door.checks"
LOSS = re.compile(r"loss ([\d.e-]+)")
PATIENCE = 120.0  # seconds

BASICS = """
import jax, jax.numpy as jnp, numpy as np
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

def said(f, *given):
    try:
        return f(*given)
    except jax.errors.JaxRuntimeError as error:
        return str(error).splitlines()[0]

print(said(jax.jit(lambda x: jnp.concatenate([x, x])), jnp.zeros(3, "int2")))
print(said(jax.jit(jax.ffi.ffi_call("never_heard_of", jax.ShapeDtypeStruct((2,), np.float32))), np.ones(2, np.float32)))
print(float(jax.jit(lambda x: x + 2)(np.float32(1))))
"""

LOOPS = """
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
rows = NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), "x"), P("x"))
x = jax.device_put(np.ones((64, 512), np.float32), rows)

def train_step(x):
    return x + x.mean()

step = jax.jit(train_step)
print("begun", float(step(x)[0, 0]), flush=True)
while True:
    x = step(x).block_until_ready()
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Its agents do not trust their clients."""
    names = ["--name", "alice", "--weight", "2"]
    with on_cluster(controller=["--metrics-port", "0"], agents=["--no-trust-clients"], door=names) as found:
        yield found


@pytest.fixture(scope="module")
def metrics(served: Served) -> str:
    """Where they are."""
    said = served.cluster.controller.process.stdout
    assert said is not None
    found = re.search(r"http://\S+", said.readline().decode())
    assert found is not None
    return found[0]


# --- what works -------------------------------------------------------------------------------------------------


def test_a_program_computes_on_all_devices_of_both_hosts_and_leaves_nothing(served: Served) -> None:
    """Code that ends its compiler, or that is refused, is told, and the agents live."""
    *said, deadly, refused, alive = output(python("-c", BASICS, env=served.door.env)).splitlines()
    assert said == [f"{DEVICES} cpu", "True", "True ('x', 'y')", "True", "True"]
    assert "the compiler's process was ended by SIGABRT" in deadly
    assert "is refused: it calls 'never_heard_of'" in refused
    assert alive == "3.0"
    assert [agent.alive for agent in served.cluster.agents] == [True, True]
    await_nothing_held(served.cluster)


@pytest.mark.parametrize(
    ("names", "ran"),
    [
        (("two_stages", "reshard"), [*MPMD_RAN[:4], "reshard True True"]),
        pytest.param(("pipeline",), MPMD_RAN[4:], marks=pytest.mark.full),
    ],
)
def test_an_mpmd_program_computes_on_both_hosts_what_plain_jax_does(
    names: tuple[str, ...], ran: list[str], served: Served
) -> None:
    """A step of the pipeline has 68 calls of stages and 48 copies, and is one call. Arrays may be cut otherwise."""
    assert output(python(str(MPMD_CLIENT), "3", *names, env=served.door.env)).splitlines() == ran
    await_nothing_held(served.cluster)


@pytest.mark.full
def test_all_checks_pass_on_a_cluster(served: Served) -> None:
    ended = python("-m", CHECKS, env=served.door.env)
    assert ended.code == 0, f"{ended.out}\n{ended.err[-4000:]}"
    assert ended.out.count(": ok (") >= 28
    await_nothing_held(served.cluster)


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_examples_lose_on_a_cluster_what_they_lose_here(name: str, served: Served, tmp_path: Path) -> None:
    """Sums over two hosts are made in another order than in one process: the last digits may differ."""
    path = str(EXAMPLES / name)
    here = output(python(path, env=processes.environment(DEVICES), folder=tmp_path))
    there = output(python(path, env=served.door.env, folder=tmp_path))
    assert LOSS.sub("", there) == LOSS.sub("", here)
    losses = [float(loss) for loss in LOSS.findall(here)]
    assert len(losses) >= 10
    assert [float(loss) for loss in LOSS.findall(there)] == pytest.approx(losses, rel=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", ["flax_mesh.py", "scan_transformer.py"])
def test_on_one_host_they_lose_the_same_to_the_last_digit(name: str, tmp_path: Path) -> None:
    path = str(EXAMPLES / name)
    here = output(python(path, env=processes.environment(DEVICES), folder=tmp_path))
    with on_cluster(1, DEVICES) as found:
        assert output(python(path, env=found.door.env, folder=tmp_path)) == here


# --- what is seen ----------------------------------------------------------------------------------------------


def test_clients_are_seen_by_name_with_their_functions_and_leave_nothing_when_they_are_ended(
    served: Served, metrics: str
) -> None:
    """One is interrupted, one killed."""
    names = ["alice", "alice-2"]
    with program(LOOPS, served.door.env) as first, program(LOOPS, served.door.env) as second:
        first.until("begun")
        second.until("begun")
        status = served.cluster.status()
        assert sorted(each["name"] for each in status["clients"]) == names
        assert all(each["programs"] and each["weight"] == 2 for each in status["clients"])
        assert re.findall(r"^\d+ +(\S+) +2 +[1-9]", table(status), re.MULTILINE) == names
        figures = _get(metrics)
        for what in ("runs", "programs"):
            found = re.findall(rf'^seaway_client_{what}{{client="(.+)"}} \d', figures, re.MULTILINE)
            assert found == names
        with sw.connect(f"grpc://{served.cluster.address}") as operator:
            trace = operator.trace
        first.end(signal.SIGINT)
        until(lambda: len(served.cluster.status()["clients"]) == 1, "an interrupted program is still a client")
    for rows, column in ((trace.runs(), "program"), (trace.gangs(), "step")):
        who = rows[rows[column] == "train_step"]["client"].astype(str)
        assert {each.partition(" (")[0] for each in who} == set(names)  # earlier sessions had these names, too
    await_nothing_held(served.cluster)


# --- a door that cannot serve ----------------------------------------------------------------------------------


def test_a_program_that_asks_for_devices_when_there_are_none_waits_and_the_log_says_for_what() -> None:
    code = "import jax; print(len(jax.devices()), flush=True)"
    with (
        controller_only(1, ["--devices-per-host", str(DEVICES)]) as cluster,
        opened(DEVICES, ["--connect", cluster.address, "--verbose"]) as door,
        program(code, door.env) as found,
    ):
        log = until(lambda: "waits for" in door.child.tail() and door.child.tail(), "nothing is said")
        assert re.search(r"\bhosts? 0\b", log)
        cluster.start_agents(["--trust-clients"], DEVICES)
        assert found.line() == str(DEVICES)
