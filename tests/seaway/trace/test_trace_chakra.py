"""A trace as Chakra execution traces: which nodes each device's file has, and what they wait for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import seaway as sw
from seaway.chakra_files import COLLECTIVE, COMPUTE, RECV, SEND, VERSION, messages
from seaway.errors import NotATrace
from seaway.trace import Trace
from seaway.trace.storage import sign
from sim.hardware import Collective, Kernel
from tests.seaway.small_sessions import small

from .traces import shared

ZERO = np.float32(0)
MIB = 1 << 20


class Node(NamedTuple):
    id: int
    name: str
    kind: int
    after: list[int]
    about: dict[str, Any]


def nodes(folder: Path, rank: int) -> list[Node]:
    head, *found = messages(folder / f"{folder.name}.{rank}.et")
    assert head.version == VERSION
    return [
        Node(
            each.id, each.name, each.type, list(each.data_deps),
            {a.name: getattr(a, a.WhichOneof("value")) for a in each.attr if a.name != "is_cpu_op"},
        )
        for each in found
    ]  # fmt: skip


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def traced(*steps: Any, **options: Any) -> Trace:
    with small(profile="ideal", **options) as s:
        for step in steps:
            step(ZERO)
    found: Trace = s.trace
    return found


def test_a_gang_is_its_own_work_and_then_its_collectives_on_each_device(tmp_path: Path) -> None:
    step = sw.synthetic("step", devices=4, duration="330us", allreduce="4MiB", alltoall="1MiB")
    folder = traced(step, step).chakra(tmp_path / "run")
    assert files(folder) == ["comm_group.json", "run.0.et", "run.1.et", "run.2.et", "run.3.et"]
    assert json.loads((folder / "comm_group.json").read_text()) == {}  # all ranks are ASTRA-sim's default group
    found = nodes(folder, 3)
    assert [(node.kind, node.name, node.after) for node in found] == [
        (COMPUTE, "step", []), (COLLECTIVE, "step all-reduce", [0]), (COLLECTIVE, "step all-to-all", [1]),
        (COMPUTE, "step", [2]), (COLLECTIVE, "step all-reduce", [3]), (COLLECTIVE, "step all-to-all", [4]),
    ]  # fmt: skip
    assert found[0].about == {"duration_ns": 330_000}
    takes = [node.about.pop("duration_ns") for node in found[1:3]]
    assert [node.about for node in found[1:3]] == [
        {"comm_type": 0, "comm_size": 4 * MIB}, {"comm_type": 6, "comm_size": MIB}
    ]  # fmt: skip
    assert 330_000 + sum(takes) == round(float(traced(step).gangs()["duration_us"][0]) * 1_000)


def test_work_that_hides_a_collective_is_a_node_beside_it_and_groups_are_named(tmp_path: Path) -> None:
    """Two groups of neighbours, and two of every other device; the rest of the work comes first."""
    exchanges = (Collective("all-gather", MIB, ((2, 1),), 2, 40_000), Collective("reduce-scatter", MIB, ((2, 2),)))
    kernel = Kernel("k", 100_000, exchanges, flops=1e6, hbm_bytes=2e6)
    folder = traced(sw.synthetic("step", devices=4, kernel=kernel)).chakra(tmp_path / "run")
    groups = {int(name): ranks for name, ranks in json.loads((folder / "comm_group.json").read_text()).items()}
    assert sorted(groups.values()) == [[0, 1], [0, 2], [1, 3], [2, 3]]
    found = nodes(folder, 1)
    assert [(node.kind, node.after) for node in found] == [
        (COMPUTE, []), (COLLECTIVE, [0]), (COMPUTE, [0]), (COLLECTIVE, [1, 2]), (COMPUTE, [1, 2]), (COLLECTIVE, [3, 4]),
    ]  # fmt: skip
    assert [node.about["duration_ns"] for node in found if node.kind == COMPUTE] == [20_000, 40_000, 40_000]
    assert found[0].about == {"num_ops": 200_000, "tensor_size": 400_000, "duration_ns": 20_000}
    assert [groups[int(node.about["pg_name"])] for node in found if node.kind == COLLECTIVE] == [[0, 1], [0, 1], [1, 3]]


def test_each_member_of_a_permute_sends_to_the_next_and_receives_from_the_one_before(tmp_path: Path) -> None:
    folder = traced(sw.synthetic("step", devices=4, duration="1us", permute="1MiB")).chakra(tmp_path / "run")
    ends = {(node.about["comm_src"], node.about["comm_dst"]) for rank in range(4) for node in nodes(folder, rank)[1:]}
    assert ends == {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert [(node.kind, node.after) for node in nodes(folder, 2)] == [(COMPUTE, []), (SEND, [0]), (RECV, [0])]


def test_a_transfer_is_sent_behind_its_maker_and_received_before_its_reader(tmp_path: Path) -> None:
    here, there = (sw.slice(devices=2, name=name, exclusive=True) for name in ("here", "there"))
    make = sw.jit(lambda x: x, devices=here, out_shardings=here.sharding("x"), cost="1ms", name="make")
    read = sw.jit(lambda x: x, devices=there, in_shardings=there.sharding("x"), cost="2ms", name="read")
    moved = sw.program(lambda x: read(sw.put(make(x), sharding=there.sharding("x"))), name="moved")
    with small(profile="ideal") as s:
        moved(np.zeros(MIB, np.float32))
    folder = s.trace.chakra(tmp_path / "run")
    (maker, sent), (received, reader) = nodes(folder, 1), nodes(folder, 3)
    assert (maker.name, sent.kind, sent.after) == ("make", SEND, [maker.id])
    assert (received.kind, received.after, reader.name, reader.after) == (RECV, [], "read", [received.id])
    assert sent.about == received.about
    assert (sent.about["comm_src"], sent.about["comm_dst"], sent.about["comm_size"]) == (1, 3, 2 * MIB)


def test_steps_of_a_gang_are_repeated_up_to_a_limit_and_a_window_takes_fewer_gangs(tmp_path: Path) -> None:
    step = sw.synthetic("step", devices=4, duration="1us", steps=50)
    trace = traced(step, step)
    assert len(nodes(trace.chakra(tmp_path / "run", limit=400), 0)) == 100
    with pytest.raises(ValueError, match=r"with 'step' there are more than limit=399 nodes .* of 4 ranks"):
        trace.chakra(tmp_path / "run", limit=399)
    assert len(nodes(trace.chakra(tmp_path / "run", window=(None, "10us")), 0)) == 50
    with pytest.raises(ValueError, match="no gang began in the window"):
        trace.chakra(tmp_path / "run", window=("1s", "2s"))


def test_a_trace_that_was_saved_is_written_alike_and_files_of_more_ranks_are_replaced(tmp_path: Path) -> None:
    trace = traced(sw.synthetic("step", devices=4, duration="1us", allreduce="1MiB"))
    before = {path.name: path.read_bytes() for path in trace.chakra(tmp_path / "run").iterdir()}
    (tmp_path / "run" / "run.4.et").write_bytes(b"of an earlier trace")
    folder = Trace.load(trace.save(tmp_path / "saved")).chakra(tmp_path / "run")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_without_a_simulation_a_gang_is_one_node_of_its_whole_time(tmp_path: Path) -> None:
    trace = Trace(shared(gangs=20))
    found = nodes(trace.chakra(tmp_path / "run"), 7)
    assert [node.kind for node in found] == [COMPUTE] * 20
    assert [node.about["duration_ns"] for node in found] == (trace.gangs()["duration_us"] * 1_000).round().tolist()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("duration", -1), ("duration", 1 << 63), ("steps", 0), ("duration", "long"), ("place", [0, [[0, [4], [1, 1]]]]),
        ("place", [0, [[0, [1 << 40], [1]]]]), ("place", [0, []]),
        ("collectives", [{"takes": 1, "collective": {"kind": "all-reduce", "nbytes": 4, "groups": [[0, 1]]}}]),
        ("collectives", [{"takes": 1, "collective": {"kind": "gossip", "nbytes": 4}}]),
    ],
)  # fmt: skip
def test_damaged_work_is_no_trace(tmp_path: Path, key: str, value: object) -> None:
    folder = traced(sw.synthetic("step", devices=4, duration="1us", allreduce="1MiB")).save(tmp_path / "saved")
    head = json.loads((folder / "trace.json").read_text())
    head["works"][0][key] = value
    (folder / "trace.json").write_text(json.dumps(head))
    sign(folder)
    with pytest.raises(NotATrace, match="damaged"):
        Trace.load(folder)


def test_work_that_is_not_there_is_no_trace(tmp_path: Path) -> None:
    first, second = (sw.synthetic(name, devices=4, duration=time) for name, time in (("a", "1us"), ("b", "2us")))
    folder = traced(first, second).save(tmp_path / "saved")
    head = json.loads((folder / "trace.json").read_text())
    assert len(head["works"]) == 2
    head["works"].pop()
    (folder / "trace.json").write_text(json.dumps(head))
    sign(folder)
    with pytest.raises(NotATrace, match="work that is not there"):
        Trace.load(folder)
