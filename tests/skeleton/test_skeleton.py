"""The first test: one gang over two hosts, one core, a simulated and a real driver: the same order."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from jax import export
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from . import grpc_driver, sim_driver
from . import vocabulary as v
from .client import Client, Workload
from .minicore import CONTROLLER, Controller
from .miniexecutor import Executor
from .tape import Machine, Tape, replay

HOSTS = ("host/0", "host/1")
BOUND_NS = 20 * 10**9
VALUE = np.array([[1, 2, 3], [10, 20, 30]], np.float32)


def psum_over(hosts: int) -> bytes:
    """A sum over all hosts, traced for devices this process does not have."""
    mesh = AbstractMesh((hosts,), ("x",), axis_types=(AxisType.Auto,))

    def body(x: jax.Array) -> jax.Array:
        total: jax.Array = jax.lax.psum(x, "x")  # type: ignore[no-untyped-call]
        return total

    split, whole = PartitionSpec("x"), PartitionSpec()  # type: ignore[no-untyped-call]
    mapped = jax.shard_map(body, mesh=mesh, in_specs=split, out_specs=whole)
    step = jax.jit(mapped, out_shardings=NamedSharding(mesh, whole))
    shape = jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
        VALUE.shape, jnp.float32, sharding=NamedSharding(mesh, split)
    )
    return bytes(export.export(step, platforms=("cpu", "tpu", "cuda"))(shape).serialize())


def workload(runs: int = 1) -> Workload:
    argument = v.Literal("float32", VALUE.shape, VALUE.tobytes())
    return Workload("psum", psum_over(len(HOSTS)), 100_000, argument, runs)


def fresh(name: str, work: Workload) -> Callable[[], Machine]:
    if name == CONTROLLER:
        return lambda: Controller(HOSTS, BOUND_NS)
    return (lambda: Executor(name)) if name in HOSTS else (lambda: Client(name, work))


def assert_replays(tapes: dict[str, Tape], work: Workload) -> None:
    for name, tape in tapes.items():
        assert replay(tape, fresh(name, work)) == msgspec.msgpack.encode(tape.commands), name


def test_both_drivers_take_the_gang_through_the_same_commands() -> None:
    work = workload()
    sim = sim_driver.run(work, HOSTS, BOUND_NS)
    real = grpc_driver.run(work, HOSTS, BOUND_NS)

    assert sim.finish == real.finish == v.Finish(())
    assert sim.tapes.keys() == real.tapes.keys() == {CONTROLLER, "client/0", *HOSTS}
    for name in sim.tapes:
        assert sim.tapes[name].commands == real.tapes[name].commands, name
    hashes = {tapes[n].order_hash for tapes in (sim.tapes, real.tapes) for n in (CONTROLLER, *HOSTS)}
    assert len(hashes) == 1
    assert hashes != {""}

    shards = {host: np.frombuffer(data, np.float32) for (_, host), data in real.shards.items()}
    assert {host: list(shard) for host, shard in shards.items()} == {host: [11, 22, 33] for host in HOSTS}
    assert_replays(sim.tapes, work)
    assert_replays(real.tapes, work)
    assert {real.exits[host] for host in HOSTS} == {0}


def test_several_runs_keep_one_order_whoever_drives() -> None:
    """With runs in flight acknowledgements interleave freely: the order is equal, not the whole tape."""
    work = workload(runs=3)
    sim = sim_driver.run(work, HOSTS, BOUND_NS)
    real = grpc_driver.run(work, HOSTS, BOUND_NS)
    assert len({tapes[n].order_hash for tapes in (sim.tapes, real.tapes) for n in (CONTROLLER, *HOSTS)}) == 1
    for name in sim.tapes:
        mine, theirs = sim.tapes[name].commands, real.tapes[name].commands
        assert sorted(map(msgspec.msgpack.encode, mine)) == sorted(map(msgspec.msgpack.encode, theirs)), name
    assert len(real.shards) == 3 * len(HOSTS)
    assert_replays(real.tapes, work)


def test_collective_starts_when_the_last_host_arrives() -> None:
    late = 7_000_000
    sim = sim_driver.run(workload(), HOSTS, BOUND_NS, sim_driver.Model(slow={"host/1": late}))
    first, last = sorted(sim.intervals, key=lambda i: i.arrived)
    assert (first.host, last.host) == HOSTS
    assert last.arrived - first.arrived == late
    assert first.started == last.started == last.arrived
    assert first.ended == last.ended == last.started + 100_000


def test_a_wait_past_its_bound_names_the_host() -> None:
    sim = sim_driver.run(workload(), HOSTS, BOUND_NS, sim_driver.Model(slow={"host/1": 2 * BOUND_NS}))
    assert sim.reports == [v.ReportLate(1, "psum", ("host/1",))]
    assert sim.finish == v.Finish(())


@pytest.mark.parametrize("drive", [sim_driver.run, grpc_driver.run])
def test_a_lost_host_fails_the_run_once_and_is_blamed(drive: Callable[..., object]) -> None:
    result = drive(workload(), HOSTS, BOUND_NS, kill="host/1")
    assert result.finish == v.Finish(("run 1: host/1",))  # type: ignore[attr-defined]
