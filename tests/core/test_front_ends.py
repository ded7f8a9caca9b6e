"""What front ends need of core, played in the world: parts of a slice, shardings with meshes of their own, programs
that only move, and programs for their effect.
"""

from __future__ import annotations

import msgspec
import pytest

from core.model.program import Node, Program, Sharding, SliceSpec, Value
from core.model.topology import small
from tests.core.build import Build
from tests.world.script import RunHandle, Script
from tests.world.world import World


def world(hosts: int = 2, devices_per_host: int = 4) -> World:
    return World(small(hosts, devices_per_host), seed=5)


def slices(**parts: tuple[int, ...]) -> Build:
    """A program on a slice "all" of 8 devices and parts of it."""
    b = Build("program", all=8)
    b.slices += [SliceSpec(name, len(picks), of="all", picks=picks) for name, picks in parts.items()]
    return b


def ended(w: World, client: Script, *runs: RunHandle) -> None:
    """All is well, the results have the right contents, and nothing is left."""
    assert w.run()
    assert [run.blame for run in runs] == [None] * len(runs)
    fetches = [client.get(each) for run in runs for each in run.results if each.name and not each.released]
    assert w.run()
    assert all(fetch.right for fetch in fetches), [fetch.blame for fetch in fetches]
    client.release_all()
    assert w.run()
    w.run_for(10**9)
    assert w.faults == []
    w.at_rest()
    assert w.machine.left()["buffers"] == 0
    assert not any(mine.buffers for mine in w.fabric.hosts.values())


# --- sub-slices -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("picks", [(5,), (0, 1, 2, 3), (6, 4), (7, 6, 5, 4, 3, 2, 1, 0), (4, 1, 7, 2)])
def test_a_program_runs_on_the_devices_that_it_picks(picks: tuple[int, ...]) -> None:
    w = world()
    client = w.client("a")
    b = slices(part=picks)
    made = b.call("f", "part", [b.arg("part", 64, split="0")])
    run = client.submit(b.program(made), bytes(256))
    assert w.run_until(lambda: run.ended)
    (rows,) = w.machine.compilation.known().values()
    assert tuple(rows.plan.steps[0].place.devices()) == picks
    ended(w, client, run)


def test_a_put_lies_where_its_sub_slice_lies_and_the_slice_must_be_bound() -> None:
    w = world()
    client = w.client("a")
    part = SliceSpec("part", 2, of="all", picks=(7, 0))
    early = client.put(Value((8,), "float32"), part)
    assert w.run()
    assert early.blame is not None
    assert "which this session has not bound" in early.blame.cause
    client.register(slices(part=(7, 0)).program())
    late = client.put(Value((8,), "float32", 0, Sharding(((0,),))), part)
    assert w.run()
    assert late.ready
    fetch = client.get(late)
    assert w.run()
    assert fetch.right


# --- meshes ---------------------------------------------------------------------------------------------------


def test_shardings_with_meshes_of_their_own_are_the_same_layout_as_that_of_a_slice() -> None:
    """A value that is split by all devices is where it must be, whatever mesh says so; another split is resharded."""
    w = world()
    client = w.client("a")
    b = slices()
    x = b.arg("all", 64, split="0")
    by_two = msgspec.structs.replace(x.value, sharding=Sharding(((0, 1),), (4, 2)))
    turned = msgspec.structs.replace(x.value, sharding=Sharding(((1, 0),), (4, 2)))
    same = b.call("same", "all", [x], [by_two])
    other = b.call("turn", "all", [same], [turned])
    program = b.program(b.call("back", "all", [other], [x.value]))
    wants = [x.value, by_two, turned]
    nodes = tuple(
        msgspec.structs.replace(node, expects=(want,)) for node, want in zip(program.nodes, wants, strict=True)
    )
    run = client.submit(msgspec.structs.replace(program, nodes=nodes), bytes(256))
    assert w.run_until(lambda: run.ended)
    (rows,) = w.machine.compilation.known().values()
    assert [step.name for step in rows.plan.steps] == ["same", "turn", "back"], "nothing is resharded"
    assert {slot.layout.sharding.mesh for slot in rows.plan.slots} == {()}
    assert [slot.layout.mesh for slot in rows.plan.slots] == [(8,), (4, 2), (4, 2), (8,)]
    ended(w, client, run)


# --- programs for their effect ----------------------------------------------------------------------------------


def effect(outputs: bool) -> Program:
    b = slices(part=(2, 5))
    x = b.arg("part", 16, split="0")
    b.call("f", "part", [x], [x.value])
    if not outputs:
        b.nodes = [msgspec.structs.replace(node, outputs=()) for node in b.nodes if isinstance(node, Node)]
    return b.program()


@pytest.mark.parametrize("outputs", [False, True])
def test_a_program_without_results_runs_and_ends(outputs: bool) -> None:
    w = world()
    client = w.client("a")
    runs = [client.submit(effect(outputs), bytes(64)) for _ in range(3)]
    ended(w, client, *runs)
    assert len(w.gangs) == 3


@pytest.mark.parametrize("outputs", [False, True])
def test_a_program_without_results_that_fails_ends_with_the_blame(outputs: bool) -> None:
    w = world()
    client = w.client("a")
    w.break_gang(0, "f")
    run = client.submit(effect(outputs), bytes(64))
    assert w.run()
    assert run.blame is not None
    assert (run.blame.code, run.blame.node) == ("user", "f")
    ended(w, client, client.submit(effect(outputs), bytes(64)))


def test_a_program_of_no_nodes_ends_at_once() -> None:
    w = world()
    client = w.client("a")
    ended(w, client, client.submit(slices().program()))
    assert w.gangs == []


@pytest.mark.parametrize("dtype", ["int4", "uint2", "float8_e8m0fnu", "float4_e2m1fn", "float6_e3m2fn"])
def test_small_types_take_a_byte_an_element(dtype: str) -> None:
    w = world()
    client = w.client("a")
    b = slices()
    x = b.arg("all", 16, split="0", dtype=dtype)
    ended(w, client, client.submit(b.program(b.call("f", "all", [x])), bytes(16)))
