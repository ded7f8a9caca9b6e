"""Unmodified JAX programs in the simulator: each is a child process, behind a door that simulates."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import seaway as sw
from experiments.bench.frame.door_server import Door, opened
from seaway.chakra_files import COLLECTIVE, messages
from seaway.cli import main
from seaway.trace import Trace
from seaway.trace.chakra import TYPES
from tests.backend.door.jax_programs import program
from tests.backend.door.program_runs import MPMD_CLIENT, MPMD_RAN, Ended, output, python

STEPS = 4
MANY = 64  # devices, more than any machine has
PATIENCE = 120.0  # seconds

TRAIN = """
import json, sys
from functools import partial
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(-1, 2), ("data", "model"))
on = lambda *spec: NamedSharding(mesh, P(*spec))
rows = max(64, len(jax.devices()))


@partial(jax.jit, out_shardings=on(None, "model"))
def init(key):
    return jax.random.normal(key, (64, 64)) / 8


@partial(jax.jit, donate_argnums=0)
def train_step(w, x):
    loss, grad = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w) - x) ** 2))(w)
    return w - grad, loss


w = init(jax.random.key(0))
x = jax.device_put(np.sin(np.arange(rows * 64, dtype=np.float32)).reshape(rows, 64), on("data"))
losses = []
for _ in range(int(sys.argv[1])):
    w, loss = train_step(w, x)
    losses.append(loss)
w.block_until_ready()
print(json.dumps({"devices": len(jax.devices()), "kind": jax.devices()[0].device_kind, "spec": list(w.sharding.spec)}))
if len(sys.argv) > 2:
    print(json.dumps([float(loss) for loss in losses] + np.asarray(w).reshape(-1)[:100].tolist()))
"""

SHARDS = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
rows = NamedSharding(Mesh(np.array(jax.devices()), "x"), P("x"))
alone = jax.jit(lambda x: x + 1)
x = jax.device_put(np.arange(len(jax.devices()) * 2048, dtype=np.float32), rows)
for _ in range(3):
    x = jax.make_array_from_single_device_arrays(x.shape, rows, [alone(each.data) for each in x.addressable_shards])
print(np.asarray(x)[::2048].tolist())
"""

READS = """
import jax, jax.numpy as jnp, numpy as np
x = jax.device_put(np.arange(3.0))
print(np.asarray(x).tolist())
total = jax.jit(lambda x: (x * 2).sum())(x)
total.block_until_ready()
print(total.shape, total.dtype, float(total))
rows = jax.jit(lambda x: x.astype(jnp.bfloat16) + 1, out_shardings=on("data"))(x=np.ones((rows, 3)))
found, last = np.asarray(rows), np.asarray(rows.addressable_shards[-1].data)
print(found.dtype, found.shape, found.sum(), last.shape)

from jax_plugins.seaway import clock
def timed(x):
    return x @ x
timed = jax.jit(timed)
big = jnp.zeros((2048, 2048))
jax.block_until_ready(timed(big))
begun = clock.now()
jax.block_until_ready(timed(big))
print((clock.now() - begun) * 1e6)
"""


@contextmanager
def simulated(devices: int, trace: Path, *words: str) -> Iterator[Door]:
    """With the door's trace on disk, and all that it has printed read, when it has ended."""
    with opened(devices, ["--simulate", "B", "--trace", str(trace), "--name", "ann", *words]) as door:
        yield door
        door.child.process.send_signal(signal.SIGTERM)
        assert door.child.process.wait(60) == 0
        assert door.child.process.stdout is not None
        door.printed += door.child.process.stdout.read().decode()


def said(ended: Ended) -> list[Any]:
    assert ended.code == 0, f"{ended.out}\n{ended.err[-4000:]}"
    return [json.loads(line) for line in ended.out.splitlines()]


def trained(rows: int) -> list[float]:
    """What TRAIN prints, on a device of this process."""
    loss_of = jax.value_and_grad(lambda w, x: jnp.mean((jnp.tanh(x @ w) - x) ** 2))
    w = jax.random.normal(jax.random.key(0), (64, 64)) / 8
    losses: list[float] = []
    for _ in range(STEPS):
        loss, grad = loss_of(w, np.sin(np.arange(rows * 64, dtype=np.float32)).reshape(rows, 64))
        w, losses = w - grad, [*losses, float(loss)]
    return [*losses, *np.asarray(w).reshape(-1)[:100].tolist()]


def gangs(trace: Trace, name: str) -> Any:
    found = trace.gangs()
    return found[found["program"] == name]


@pytest.mark.parametrize("devices", [8, pytest.param(16, marks=pytest.mark.full)])
def test_programs_compute_what_they_compute_on_devices_of_their_own_and_arrays_made_of_shards_move_nothing(
    devices: int, tmp_path: Path
) -> None:
    """The second program puts one array, and reads one. The third is a pipeline of four stages on two devices each."""
    with simulated(devices, tmp_path / "trace", "--values", "compute") as door:
        (facts, found) = said(python("-c", TRAIN, str(STEPS), "read", env=door.env))
        (joined,) = said(python("-c", SHARDS, env=door.env))
        if devices == 8:
            assert output(python(str(MPMD_CLIENT), "3", "pipeline", env=door.env)).splitlines() == MPMD_RAN[4:]
    assert facts == {"devices": devices, "kind": "tpu-v3", "spec": [None, "model"]}
    assert found == pytest.approx(trained(max(64, devices)), rel=1e-4, abs=1e-5)
    assert joined == [2048 * at + 3 for at in range(devices)]
    trace = Trace.load(tmp_path / "trace")
    assert len(gangs(trace, "train_step")) == STEPS
    second = [table[table["client"] == "ann (2)"] for table in (trace.gangs(), trace.transfers())]
    assert [len(each) for each in second] == [3 * devices, 2]
    if devices == 8:
        check_pipeline(trace)


def check_pipeline(trace: Trace) -> None:
    """Micro-batches go through the stages one behind the other; the first stage waits for the first gradients."""
    third = gangs(trace, "train")
    assert len(third) == 3 * 68
    step = third[third["run"] == third["run"].min()]
    times = {
        name: step[step["step"].str.contains(name)][["started_us", "ended_us"]].to_numpy()
        for name in ("p0_stage0_fwd", "p1_stage1_fwd", "p2_stage2_fwd", "p3_loss", "p8_stage0_bwd")
    }
    first = [times[name][0, 0] for name in list(times)[:4]]
    assert first == sorted(set(first))
    forwards, backwards = times["p0_stage0_fwd"], times["p8_stage0_bwd"]
    assert len(forwards) == len(backwards) == 8
    assert forwards[1, 0] < first[3]
    bubble = backwards[0, 0] - forwards[-1, 1]
    assert bubble > 2 * np.diff(forwards[:, 0]).max()


class Shapes(NamedTuple):
    """A door of many devices that reads as zeros, and its trace after two programs that trained: what each printed."""

    first: str
    second: str  # which also reads
    door: str
    trace: Trace


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Shapes:
    """The trace is written when a program has ended, and has all that came before."""
    folder, outs = tmp_path_factory.mktemp("door") / "trace", []
    with simulated(MANY, folder, "--values", "zeros") as door:
        for count, code in enumerate((TRAIN, TRAIN + READS), 1):
            ended = python("-c", code, str(STEPS), env=door.env)
            assert ended.code == 0, f"{ended.out}\n{ended.err[-4000:]}"
            outs.append(ended.out)
            await_steps(folder, count * STEPS)
    first, second = outs
    return Shapes(first, second, door.printed, Trace.load(folder))


def test_an_unmodified_program_becomes_input_for_astra_sim_and_takes_as_long_when_that_is_played(
    shapes: Shapes, tmp_path: Path
) -> None:
    """Its steps are compiled programs: what their HLO exchanges are nodes, in groups along both axes of its mesh."""
    folder = shapes.trace.chakra(tmp_path / "train")
    assert len(list(folder.glob("train.*.et"))) == MANY
    _, *found = messages(folder / "train.63.et")
    steps = [node for node in found if node.name.startswith("train_step")]
    exchanges = [node for node in steps if node.type == COLLECTIVE]
    assert {node.name for node in exchanges} <= {f"train_step {kind}" for kind in TYPES}
    assert len(exchanges) % (2 * STEPS) == 0
    groups = {len(some) for some in json.loads((folder / "comm_group.json").read_text()).values()}
    assert groups <= {2, MANY // 2}
    takes = {node.id: next(a.uint64_val for a in node.attr if a.name == "duration_ns") for node in steps}
    (took,) = set(gangs(shapes.trace, "train_step")["duration_us"])
    assert sum(takes.values()) == pytest.approx(2 * STEPS * took * 1_000)
    with sw.simulate("B", profile="ideal") as session:
        report = sw.workload.chakra(folder).play()
    again = session.trace.gangs()
    again = again[again["step"].str.startswith("train_step ")]
    assert again["devices"].tolist() == [MANY] * len(exchanges)
    assert again["duration_us"].tolist() == pytest.approx([takes[node.id] / 1_000 for node in exchanges])
    assert report.ranks == MANY


def test_many_devices_have_shapes_a_time_and_rows_with_the_functions_names(shapes: Shapes) -> None:
    assert json.loads(shapes.first) == {"devices": MANY, "kind": "tpu-v3", "spec": [None, "model"]}
    steps = gangs(shapes.trace, "train_step")
    assert steps["devices"].tolist() == [MANY] * 2 * STEPS
    assert steps["client"].tolist() == ["ann"] * STEPS + ["ann (2)"] * STEPS
    assert not steps["failed"].any()
    assert len(gangs(shapes.trace, "init")) == 2
    (took,) = set(steps["duration_us"])
    assert took > 1  # a step is priced by what it computes and exchanges: no kernel is shorter than 1 us


def test_what_was_computed_reads_as_zeros_and_the_door_says_so(shapes: Shapes) -> None:
    _, own, one, many, _ = shapes.second.splitlines()
    assert (own, one, many) == ("[0.0, 1.0, 2.0]", "() float32 0.0", "bfloat16 (64, 3) 0 (2, 3)")
    assert "each array that a program computes is read as zeros" in shapes.door
    assert "printed mean nothing: they were zeros" in shapes.door


def test_a_program_can_read_the_simulated_clock(shapes: Shapes) -> None:
    took = gangs(shapes.trace, "timed")["duration_us"].iloc[-1]
    assert took > 100
    assert took < float(shapes.second.splitlines()[-1]) < took + 10_000  # the way there and back is some milliseconds


def test_the_door_s_last_words_are_its_steps_and_the_start_up_is_one_of_them(shapes: Shapes) -> None:
    _, head, first, *others = shapes.door.partition("wrote ")[2].splitlines()
    assert head.split() == ["step", "gangs", "devices", "mean", "together"]
    assert first.split()[:3] == ["train_step", str(2 * STEPS), str(MANY)]
    assert [each.split()[0] for each in others].count("start-up,") == 1
    assert "Only these times mean anything" in shapes.door


def test_times_are_the_same_for_the_next_program(shapes: Shapes) -> None:
    starts = gangs(shapes.trace, "train_step")["started_us"].to_numpy()
    first, second = starts[:STEPS] - starts[0], starts[STEPS:] - starts[STEPS]
    assert second.tolist() == pytest.approx(first.tolist(), rel=1e-3)
    assert first[-1] > 0


def await_steps(folder: Path, count: int) -> None:
    """Until a running door has written so many steps of training."""
    until, found = time.monotonic() + PATIENCE, -1
    while found != count:
        assert time.monotonic() < until, f"the trace has {found} steps, not {count}"
        time.sleep(0.1)
        found = len(gangs(Trace.load(folder), "train_step"))


# --- two programs -------------------------------------------------------------------------------------------------

ISLANDS = """
name = "west and east"
[[island]]
name = "west"
kind = "v3"
hosts = 4
devices_per_host = 4
[[island]]
name = "east"
kind = "v3"
hosts = 8
devices_per_host = 4
"""

STEPS_OF = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

width, steps = int(sys.argv[1]), int(sys.argv[2])
rows = NamedSharding(Mesh(np.array(jax.devices()), "x"), P("x"))


@jax.jit
def train_step(x):
    return jnp.tanh(x @ x.T) @ x


x = jax.jit(lambda: jnp.ones((width, width)), out_shardings=rows)()
train_step(x).block_until_ready()
print("ready", len(jax.devices()), flush=True)
sys.stdin.readline()
for _ in range(steps):
    x = train_step(x)
x.block_until_ready()
print("over", flush=True)
"""


def test_two_programs_share_an_island_by_weights_and_their_functions_of_one_name_have_prices_of_their_own(
    tmp_path: Path,
) -> None:
    """Both run at once, and call without waiting. Their steps have one name, and one takes longer than the other."""
    cluster, other = tmp_path / "cluster.toml", f"unix:{tmp_path}/bob.sock"
    cluster.write_text(ISLANDS, encoding="utf-8")
    words = ["--simulate", str(cluster), "--trace", str(tmp_path / "trace"), "--policy", "stride", "--islands", "east"]
    with opened(32, [*words, "--name", "ann", "--also", f"{other},name=bob,weight=3"]) as door:
        env = [door.env, {**door.env, "JAX_BACKEND_TARGET": f"grpc://{other}"}]
        with program(STEPS_OF, env[0], "1024", "200") as ann, program(STEPS_OF, env[1], "2048", "100") as bob:
            for each in (ann, bob):
                assert each.line() == "ready 32", each.errors()
            for each in (ann, bob):
                each.go_on()
            for each in (ann, bob):
                assert each.line() == "over", each.errors()
                assert each.process.wait(60) == 0
        door.child.process.send_signal(signal.SIGTERM)
        assert door.child.process.wait(60) == 0
    trace = Trace.load(tmp_path / "trace")
    assert set(trace.clients()["client"]) == {"ann", "bob"}
    steps = gangs(trace, "train_step")
    assert set(steps["island"]) == {"east"}
    of = {name: steps[steps["client"] == name].iloc[1:] for name in ("ann", "bob")}  # the first was a trial
    took = {name: each["duration_us"].median() for name, each in of.items()}
    assert took["bob"] > 2 * took["ann"]
    begin = max(each["started_us"].iloc[0] for each in of.values())
    end = min(each["ended_us"].iloc[-1] for each in of.values())
    both = {name: each[(each["started_us"] >= begin) & (each["ended_us"] <= end)] for name, each in of.items()}
    shares = {name: each["duration_us"].sum() for name, each in both.items()}
    assert min(len(each) for each in both.values()) > 50
    assert shares["bob"] / shares["ann"] == pytest.approx(3, rel=0.05)


# --- several islands ----------------------------------------------------------------------------------------------

SLICES = """
import json
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
of = [each.slice_index for each in jax.devices()]
rows = [NamedSharding(Mesh([each for each in jax.devices() if each.slice_index == at], "x"), P("x")) for at in (0, 1)]
step = jax.jit(lambda x: 2 * x + 1)
y = jax.device_put(step(jax.device_put(np.ones((64, 512), np.float32), rows[0])), rows[1])
print(json.dumps([of, float(np.asarray(step(y))[3, 4])]))
"""


def test_each_island_is_a_slice_of_the_devices_and_arrays_move_between_them(tmp_path: Path) -> None:
    cluster, trace = tmp_path / "cluster.toml", tmp_path / "trace"
    cluster.write_text(ISLANDS, encoding="utf-8")
    words = ["--simulate", str(cluster), "--trace", str(trace), "--islands", "west,east", "--values", "compute"]
    with opened(2, words) as door:
        (found,) = said(python("-c", SLICES, env=door.env))
        assert found == [[0, 0, 1, 1], 7.0]
        door.child.process.send_signal(signal.SIGTERM)
        assert door.child.process.wait(60) == 0
    ran = Trace.load(trace)
    assert ran.gangs()["island"].tolist() == ["west", "east"]
    moved = ran.transfers()
    assert moved[moved["step"] == "copy"]["nbytes"].tolist() == [64 * 512 * 4]


# --- options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--simulate", "Q"), "'Q'"),
        (("--simulate", "B", "--connect", "grpc://head:29000"), "a door has one cluster"),
        (("--simulate", "B", "--devices", "513"), "there are 512 on island"),
        (("--simulate", "B", "--islands", "west"), "the cluster has no island 'west'"),
        (("--simulate", "docs/examples/cluster.toml", "--islands", "all"), "a program's devices are of one kind, and"),
        (("--simulate", "v5p-16384"), "a door simulates at most 4,096"),
        (("--simulate", "B", "--values", "compute"), "--values compute: this machine's CPU stands for each"),
        (("--simulate", "B", "--token-file", "x"), "--token-file is for a door to a cluster"),
        (("--simulate", "B", "--policy", "strid"), "did you mean 'stride'"),
        (("--simulate", "B", "--weight", "0"), "--weight 0"),
        (("--values", "compute"), "--values is for a door that simulates: give --simulate, too"),
        (("--simulate", "B", "--trace", "FOLDER"), "is there already and is no trace"),
        (("--trace", "x"), "--trace is for a door that simulates"),
        (("--also", "unix:b.sock,name=bob"), "--also is for a door that simulates"),
        (("--simulate", "B", "--also", "unix:b.sock"), "give the programs there a name, as unix:b.sock,name=bob"),
        (("--simulate", "B", "--also", "unix:b.sock,name=bob,weight=0"), "a share is a whole number"),
        (("--simulate", "B", "--also", "unix:b.sock,name=bob,weight=two"), "weight is a whole number"),
        (("--simulate", "B", "--also", "unix:b.sock,name=bob,island=x"), "name=, weight= or priority=, each once"),
        (("--simulate", "B", "--also", "unix:B.sock,name=bob"), "JAX reads JAX_BACKEND_TARGET in lower case"),
        (("--simulate", "B", "--name", "bob", "--also", "unix:b.sock,name=bob"), "and so is each name"),
    ],
)
def test_options_that_cannot_be_are_one_clear_error(
    options: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").touch()
    assert main(["door", *(word.replace("FOLDER", str(tmp_path)) for word in options)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("seaway: ")
    assert says in error
