"""Chakra execution traces are read, checked and played: what Seaway wrote takes as long as it took."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seaway as sw
from seaway.chakra_files import COLLECTIVE, COMPUTE, METADATA, RECV, SEND, attribute, classes, framed
from seaway.trace.chakra import KINDS
from seaway.workload.chakra_steps import PERMUTE
from sim.hardware import Collective, Kernel, chips
from tests.seaway.small_sessions import small

ZERO = np.float32(0)
MIB = 1 << 20
US, MS = 1_000, 1_000_000
PUBLISHED = Path(__file__).parent / "published"
Given = tuple[int, dict[str, Any]]  # a node's type, and what is said of it


def written(folder: Path, *ranks: list[Given], name: str = "made") -> Path:
    """Nodes are numbered in each file; `after` has numbers, and other words are fields of the node or attributes."""
    folder.mkdir(exist_ok=True)
    for rank, nodes in enumerate(ranks):
        data = framed(classes()["GlobalMetadata"](version="1.0.0"))
        for number, (kind, about) in enumerate(nodes):
            fields = {"id": number, "name": f"n{number}", "data_deps": about.get("after", ())}
            fields |= {key: about[key] for key in ("id", "duration_micros", "ctrl_deps") if key in about}
            attributes = [attribute(key, KINDS[key], about[key]) for key in about if key in KINDS]
            data += framed(classes()["Node"](type=kind, attr=attributes, **fields))
        (folder / f"{name}.{rank}.et").write_bytes(data)
    return folder


def compute(micros: int, **about: Any) -> Given:
    return COMPUTE, {"duration_micros": micros, **about}


def collective(kind: int, nbytes: int, **about: Any) -> Given:
    return COLLECTIVE, {"comm_type": kind, "comm_size": nbytes, **about}


def send(to: int, nbytes: int, **about: Any) -> Given:
    return SEND, {"comm_dst": to, "comm_size": nbytes, **about}


def receive(source: int, nbytes: int, **about: Any) -> Given:
    return RECV, {"comm_src": source, "comm_size": nbytes, **about}


def played(folder: Path, **options: Any) -> Any:
    with small(profile="ideal", devices_per_host=4, **options):
        return sw.workload.chakra(folder).play()


def took(**options: Any) -> int:
    """What a synthetic computation on four devices takes."""
    with small(profile="ideal", devices_per_host=4) as s:
        sw.synthetic("one", devices=4, **options)(ZERO)
    low, high = s.trace.span
    return high - low


# --- what Seaway has written ------------------------------------------------------------------------------------------


def again(folder: Path, *calls: Any, off: float = 0, **options: Any) -> sw.Session:
    """Run these, write them, play them on the same cluster: it takes as long, to the nanosecond, or is off by this
    share at most. Returns the second."""
    shutil.rmtree(folder, ignore_errors=True)
    with small(profile="ideal", **options) as first:
        for call in calls:
            call()
    low, high = first.trace.span
    with small(profile="ideal", **options) as second:
        report = sw.workload.chakra(first.trace.chakra(folder)).play()
    assert report.makespan == pytest.approx(high - low, rel=off, abs=0)
    return second


exchanges = st.builds(
    Collective,
    kind=st.sampled_from(["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute"]),
    nbytes=st.sampled_from([1, 1000, MIB, 16 * MIB]),
    groups=st.sampled_from([(), ((8, 1),), ((2, 1),), ((4, 2),), ((2, 4), (2, 1)), ((1, 1),)]),
    count=st.integers(1, 3),
    hidden=st.sampled_from([0, 1, 30_001, 100_000]),
)
kernels = st.builds(
    Kernel, st.just("k"), st.sampled_from([1_000_000, 1_234_567]), st.lists(exchanges, max_size=3).map(tuple)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(some=st.lists(st.tuples(kernels, st.integers(1, 3), st.booleans()), min_size=1, max_size=3))
def test_what_was_simulated_takes_as_long_when_it_is_played(tmp_path: Path, some: list[Any]) -> None:
    home = sw.slice(devices=8)
    steps = [
        sw.synthetic(f"s{number}", devices=home, kernel=kernel, steps=steps, collective=waits or steps > 1)
        for number, (kernel, steps, waits) in enumerate(some)
    ]
    again(tmp_path / "run", lambda: [step(ZERO) for step in steps], hosts=2, devices_per_host=4)


@pytest.mark.parametrize(
    ("reduced", "floats", "calls", "off"),  # above 64 KiB, collectives and transfers wait for each other on links
    [(MIB >> 4, MIB, 3, 0), (MIB, 16 * MIB, 3, 0.02), (16 * MIB, 128 * MIB, 8, 0.04)],
)
def test_so_do_two_slices_and_the_transfer_between_them(
    tmp_path: Path, reduced: int, floats: int, calls: int, off: float
) -> None:
    here, there = (sw.slice(devices=4, name=name, exclusive=True) for name in ("here", "there"))
    cost = Kernel("k", MS, (Collective("all-reduce", reduced),))
    make = sw.jit(lambda x: jnp.full(floats, x), devices=here, out_shardings=here.sharding("x"), cost=cost, name="make")
    read = sw.jit(
        lambda x: x, devices=there, in_shardings=there.sharding("x"), out_shardings=there.sharding("x"), cost=cost,
        name="read",
    )  # fmt: skip
    moved = sw.program(lambda x: read(sw.put(make(x), sharding=there.sharding("x"))), name="moved")
    session = again(tmp_path / "run", *[lambda: moved(ZERO)] * calls, off=off, hosts=2, devices_per_host=4)
    gangs = session.trace.gangs()
    assert gangs[gangs["step"] == "make"]["devices"].tolist() == [4] * calls


def test_ranks_that_do_the_same_are_one_gang_and_a_thousand_play_in_a_moment(tmp_path: Path) -> None:
    step = sw.synthetic("step", devices=1024, duration="1ms", allreduce="1MiB")
    session = again(tmp_path / "run", lambda: [step(ZERO) for _ in range(3)], hosts=256, devices_per_host=4)
    gangs = session.trace.gangs()
    assert gangs["step"].tolist() == ["step", "step all-reduce"] * 3
    assert set(gangs["devices"]) == {1024}
    assert session.trace.clients()["client"].tolist() == ["run"]


# --- what others have written -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_a_published_all_reduce_takes_what_it_takes_here(tmp_path: Path, packed: bool) -> None:
    for path in PUBLISHED.glob("*.et"):
        (tmp_path / path.name).write_bytes(gzip.compress(path.read_bytes()) if packed else path.read_bytes())
    trace = sw.workload.chakra(tmp_path / "all_reduce")
    assert repr(trace) == "<Chakra trace 'all_reduce': 4 ranks, 4 nodes>"
    assert [node.nbytes for nodes in trace.ranks for node in nodes] == [MIB] * 4
    assert played(tmp_path).makespan == took(allreduce=MIB)


def test_groups_run_side_by_side_and_work_that_does_not_wait_is_done_beside_a_collective(tmp_path: Path) -> None:
    ranks = [
        [
            compute(100), collective(0, 16 * MIB, after=[0], pg_name=str(1 + rank // 2)), compute(150, after=[0]),
            compute(10, after=[1]),
        ]
        for rank in range(4)
    ]  # fmt: skip
    folder = written(tmp_path, *ranks)
    (tmp_path / "comm_group.json").write_text('{"1": [0, 1], "2": [3, 2]}')
    kernel = Kernel("k", 260 * US, (Collective("all-reduce", 16 * MIB, ((2, 1),), hidden=150 * US),))
    found = played(folder)
    assert found.makespan == took(kernel=kernel)
    assert (found.ranks, found.gangs, found.transfers) == (4, 3, 0)


def test_a_node_without_a_duration_takes_what_its_work_needs_on_the_chip_and_the_hosts_own_work_nothing(
    tmp_path: Path,
) -> None:
    chip = chips.chip("tpu-v3")
    work: list[Given] = [
        (COMPUTE, {"num_ops": chip.peak_flops // 1000, "tensor_size": 8}),
        (COMPUTE, {"num_ops": 8, "tensor_size": chip.hbm_bandwidth // 500, "after": [0]}),
        compute(500, after=[1], is_cpu_op=True), (METADATA, {"after": [2]}), compute(7, after=[3]),
    ]  # fmt: skip
    assert played(written(tmp_path, work)).makespan == pytest.approx(3 * MS + 7 * US, abs=2)


def test_stages_of_a_pipeline_that_do_the_same_wait_for_one_another(tmp_path: Path) -> None:
    """Each of four ranks receives, computes for 1 ms and sends on. Two micro-batches take as long as five stages do."""
    ranks = []
    for rank in range(4):
        nodes: list[Given] = []
        for batch in range(2):
            first = len(nodes)
            came = [receive(rank - 1, 1024, comm_tag=batch)] if rank else []
            goes = [send(rank + 1, 1024, comm_tag=batch, after=[first + len(came)])] if rank < 3 else []
            nodes += [*came, compute(1000, after=[first] if rank else []), *goes]
        ranks.append(nodes)
    found = played(written(tmp_path, *ranks))
    assert found.transfers == 6
    assert 5 * MS < found.makespan < 5 * MS + 400 * US


def test_all_ranks_that_send_to_the_next_and_receive_from_the_one_before_make_a_permute(tmp_path: Path) -> None:
    ranks = [
        [send((rank + 1) % 4, MIB), receive((rank - 1) % 4, MIB), collective(9, 0, after=[0, 1])] for rank in range(4)
    ]
    folder = written(tmp_path, *ranks)
    assert [step.kind for step in sw.workload.chakra(folder).steps()] == [PERMUTE, COLLECTIVE]
    assert played(folder).makespan == took(permute=MIB, allreduce=4)


def test_it_is_played_on_timed_devices(tmp_path: Path) -> None:
    ranks = [[compute(2000), collective(0, MIB, after=[0], duration_ns=3 * MS)] for _ in range(4)]
    folder = written(tmp_path, *ranks)
    lacking = written(tmp_path / "lacking", [(COMPUTE, {"num_ops": 10**9})])
    with sw.local(hosts=2, devices_per_host=2, platform="timed") as s:
        found = sw.workload.chakra(folder).play()
        with pytest.raises(ValueError, match=r"node 0 \(n0\) has no duration: say on which chip it is"):
            sw.workload.chakra(lacking).play()
        assert sw.workload.chakra(lacking).play(chip="h100").gangs == 1
        assert s.costs()["duration_ns"].tolist()[:2] == [2 * MS, 3 * MS]
    assert found.gangs == 2
    assert found.makespan > 0


# --- what is wrong with files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "says"),
    [
        ([[compute(1, after=[1]), compute(1, after=[0])]], r"made.0.et: node 0 \(n0\) waits for itself"),
        ([[compute(1, after=[7])]], r"node 0 \(n0\) waits for node 7, which is not there"),
        ([[compute(1), compute(1, id=0)]], "node 0 .* has a number that another one has, too"),
        ([[(9, {})]], "node 0 .* is of type 9, which no node of version"),
        ([[(0, {})]], "node 0 .* is of type 0"),
        ([[compute(1 << 60)]], "node 0 .* takes 1,152,921,504,606,846,976 microseconds"),
        ([[compute(1 << 42), compute(1 << 42), compute(1 << 42)]], "made.0.et: its nodes take more than"),
        ([[collective(0, -5)]], "node 0 .* has comm_size=-5; it is a number, not negative"),
        ([[collective(10, 5)]], "node 0 .* has comm_type=10"),
        ([[collective(0, 5, pg_name="3")]], "node 0 .* is of group '3', of which comm_group.json"),
        ([[collective(0, 5)], []], r"made.0.et: node 0 .* has no counterpart on rank 1, which is of its group"),
        ([[collective(0, 5)], [collective(2, 5)]], "made.0.et: node 0 .* is another collective than .*made.1.et"),
        ([[send(1, 5)], []], "made.0.et: node 0 .* has no counterpart on rank 1"),
        ([[send(1, 5)], [receive(0, 6)]], "made.0.et: node 0 .* has 5 bytes; its counterpart"),
        ([[send(4, 5)], []], "node 0 .* goes from None to 4, in the file of 0"),
        ([[send(0, 5)], []], "node 0 .* goes from None to 0, in the file of 0"),
        (
            [[receive(1, 5), send(1, 5, after=[0])], [receive(0, 5), send(0, 5, after=[0])]],
            "waits for itself, by way of other ranks",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_the_file_and_the_node(tmp_path: Path, ranks: list[list[Given]], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        _ = sw.workload.chakra(written(tmp_path, *ranks)).steps()


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ({"1": [0, 4]}, "group '1' is .*give ranks of 0 to 3"), ({"1": [0, 0]}, "each once"),
        ({"1": 3}, "group '1' is 3"), ("nothing.json", "nothing.json cannot be read"),
    ],
)  # fmt: skip
def test_groups_are_checked(groups: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        sw.workload.chakra(PUBLISHED, groups=groups)


def test_files_of_all_ranks_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="and finds none"):
        sw.workload.chakra(tmp_path)
    written(tmp_path, [compute(1)], [compute(1)], name="one")
    written(tmp_path, [compute(1)], name="two")
    with pytest.raises(ValueError, match=r"those of one, two: say which, as .*one$"):
        sw.workload.chakra(tmp_path)
    (tmp_path / "one.0.et").unlink()
    with pytest.raises(ValueError, match=r"one\.0\.et is missing; there is one\.1\.et"):
        sw.workload.chakra(tmp_path / "one")


def read(tmp_path: Path, data: bytes) -> None:
    """It is read, or it is a ValueError that names the file."""
    (tmp_path / "x.0.et").write_bytes(data)
    try:
        sw.workload.chakra(tmp_path / "x").steps()
    except ValueError as error:
        said = str(error)
    else:
        said = "x.0.et is read"
    assert "x.0.et" in said


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_random_bytes_are_an_error_and_nothing_else(tmp_path: Path, data: bytes) -> None:
    read(tmp_path, data)
    read(tmp_path, gzip.compress(data))
    read(tmp_path, b"\x1f\x8b" + data)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.floats(0, 1, exclude_max=True), flip=st.integers(0, 255), cut=st.booleans(), packed=st.booleans())
def test_so_are_files_that_are_damaged(tmp_path: Path, at: float, flip: int, cut: bool, packed: bool) -> None:
    nodes = [compute(5, num_ops=7), collective(0, 99, after=[0]), (METADATA, {"after": [1]}), compute(2, after=[1, 2])]
    data = bytearray((written(tmp_path, nodes) / "made.0.et").read_bytes())
    if packed:
        data = bytearray(gzip.compress(bytes(data)))
    where = int(at * len(data))
    data[where] ^= flip
    read(tmp_path, bytes(data[:where] if cut else data))


def test_groups_with_names_may_be_given_by_hand_or_in_a_file(tmp_path: Path) -> None:
    ranks = [[collective(0, MIB, pg_name="tp")] for _ in range(2)]
    folder = written(tmp_path, *ranks)
    (tmp_path / "groups.json").write_text(json.dumps({"tp": [0, 1]}))
    for groups in ({"tp": [1, 0]}, tmp_path / "groups.json"):
        assert sw.workload.chakra(folder, groups=groups).slices() == [(0, 1)]
    (tmp_path / "groups.json").write_text("[[0, 1]]")
    with pytest.raises(ValueError, match=r"groups.json: it says the ranks of each group"):
        sw.workload.chakra(folder, groups=tmp_path / "groups.json")
