"""An unmodified JAX program's session, through a door: its log replays, hosts did what they were told, a simulated
controller decides the same on the same calls, and its rows in the trace have the names that the program gave."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.protocol import messages as m
from seaway.cli import main
from seaway.tools.parity import compare
from seaway.tools.parity.parity_runs import log_of
from seaway.tools.whatif.workload import workload_of
from seaway.trace import Trace

from . import door_rig, rig
from .door_rig import NAME, WEIGHT, DoorSession

STEPS = 4
PROGRAM = f"""
from functools import partial
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), "x")
rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "x"))
w = jax.device_put(np.full((64, 32), 0.01, np.float32), columns)
x = jax.device_put(np.ones((128, 64), np.float32), rows)


@partial(jax.jit, donate_argnums=0)
def train_step(w, x):
    loss, gradient = jax.value_and_grad(lambda w: ((x @ w - 1) ** 2).mean())(w)
    return w - 0.1 * gradient, loss


for step in range({STEPS}):
    w, loss = train_step(w, x)
    print(float(loss))


@jax.jit
def total(x):
    return x.sum()


@partial(jax.jit, out_shardings=rows)
def turn(w):
    return w * 2


turned = turn(w)
here = jax.device_put(np.ones((64, 64), np.float32), jax.devices()[0])
there = jax.device_put(here, jax.devices()[3])  # a copy, from one host to the other
print(float(total(there)), np.asarray(turned).shape)
w.delete()
large = jax.device_put(np.arange(2048 * 1024, dtype=np.float32).reshape(2048, 1024), rows)
print(float(np.asarray(large.addressable_shards[3].data)[0, 0]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("session")


@pytest.fixture(scope="module")
def session(folder: Path) -> DoorSession:
    return door_rig.recorded(PROGRAM, folder)


def test_devices_were_told_what_the_controller_had_commanded(session: DoorSession) -> None:
    losses = [float(line) for line in session.printed.splitlines()[:STEPS]]
    assert losses == sorted(losses, reverse=True)
    assert session.printed.splitlines()[STEPS:] == ["4096.0 (64, 32)", f"{1536 * 1024:.1f}"]
    assert session.devices.equal, rig.text(session.devices)
    names = [decision.node for order in session.seen.orders for decision in order]
    assert names == ["train_step"] * STEPS + ["turn", "total"]


def test_a_simulated_controller_decides_the_same_on_the_same_calls(session: DoorSession) -> None:
    found = compare.compare(door_rig.simulated(workload_of(session.log)), session.seen)
    assert found.equal, rig.text(found)
    kinds = {type(call) for call in session.calls}
    assert kinds >= {m.Register, m.Unregister, m.Put, m.Submit, m.Get, m.Release, m.CloseSession}
    donating = [what for run in session.seen.runs.values() for _, what, _ in run.entered]
    assert donating.count("gang, donating") == STEPS


def test_a_call_that_is_left_out_is_noticed(session: DoorSession) -> None:
    whole = workload_of(session.log)
    (client,) = whole.people
    last = max(at for at, made in enumerate(client.calls) if isinstance(made.call, m.Submit))
    part = whole._replace(people=(client._replace(calls=client.calls[:last]),))
    assert not compare.compare(door_rig.simulated(part), session.seen).equal


def test_the_log_replays_to_the_same_commands_and_its_trace_has_the_functions_names(
    session: DoorSession, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(log_of(folder)), "--save", str(folder / "trace")]) == 0
    assert "the same commands, to the byte" in capsys.readouterr().out
    trace = Trace.load(folder / "trace")
    assert trace.runs()["program"].tolist().count("train_step") == STEPS
    assert trace.gangs()["step"].tolist().count("train_step") == STEPS
    assert "copy" in trace.runs()["program"].tolist()
    assert set(trace.runs()["client"].astype(str)) == {NAME}
    (client,) = trace.clients().itertuples()
    assert (client.client, client.weight) == (NAME, WEIGHT)


def test_who_reads_a_shard_of_a_large_array_moves_no_more_than_that(session: DoorSession, folder: Path) -> None:
    (get,) = [call for call in session.calls if isinstance(call, m.Get) and call.shard >= 0]
    assert get.shard == 3
    if not (folder / "trace").exists():
        assert main(["replay", str(log_of(folder)), "--save", str(folder / "trace")]) == 0
    transfers = Trace.load(folder / "trace").transfers()
    assert transfers["nbytes"].max() == 2048 * 1024 * 4  # it was put whole
    assert transfers[transfers["step"] == "get"]["nbytes"].max() == 512 * 1024 * 4


def test_the_log_can_be_run_under_another_policy_and_says_for_what_the_program_waited(
    session: DoorSession, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submits = [call for call in session.calls if isinstance(call, m.Submit)]
    waited = [call.waited for call in submits]
    assert waited[1:STEPS] == [(call.run,) for call in submits[: STEPS - 1]]  # for the loss of the step before
    assert main(["whatif", str(log_of(folder)), "--policy", "stride"]) == 0
    said = capsys.readouterr().out
    assert f"{len(submits)} runs of 1 client under fifo" in said
    assert "a percentage is the model's error" in said
