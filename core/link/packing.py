"""A plan on the wire: each place and each layout is written once, however many slots and gangs name it.

So what a host is sent does not grow with its devices: what does (a place's extent, a mesh) is said a few
times a plan and not a few times a node. In memory nobody meets the packed form; `codec` packs and unpacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from ..model import Code, Gang, Layout, Move, Place, Plan, Sharding, Slot, Spans
from ..protocol import Ordered, RunHeader, Step

T = TypeVar("T")
LayoutRow = tuple[tuple[int, ...], str, int, tuple[int, ...], Sharding]  # Layout; its place by number
SlotRow = tuple[int, int, int, int, int, bool, int, tuple[int, ...]]  # Slot; its layout by number


class GangRow(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Gang; its place by number."""

    name: str
    computation: int
    place: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    donated: tuple[int, ...]
    cost: int
    temp: int
    collective: bool
    irregular: bool
    node: int


class PackedPlan(msgspec.Struct, frozen=True, array_like=True):
    id: int
    program: str
    places: tuple[Place, ...]
    layouts: tuple[LayoutRow, ...]
    codes: tuple[Code, ...]
    slots: tuple[SlotRow, ...]
    steps: tuple[GangRow | Move, ...]
    after: tuple[tuple[int, ...], ...]
    results: tuple[int, ...]


class PackedOrdered(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ordered"):
    """`Ordered`, field by field; without plans it has the same bytes."""

    island: int
    epoch: int
    tree: int
    number: int
    hosts: Spans
    settled: int
    plans: tuple[PackedPlan, ...]
    runs: tuple[RunHeader, ...]
    steps: tuple[Step, ...]


def pack(message: Ordered) -> PackedOrdered:
    fields = msgspec.structs.asdict(message)
    return PackedOrdered(**{**fields, "plans": tuple(pack_plan(plan) for plan in message.plans)})


def unpack(message: PackedOrdered) -> Ordered:
    """Raises ValueError if a number stands for nothing."""
    fields = msgspec.structs.asdict(message)
    return Ordered(**{**fields, "plans": tuple(unpack_plan(plan) for plan in message.plans)})


def pack_plan(plan: Plan) -> PackedPlan:
    places: dict[Place, int] = {}
    layouts: dict[Layout, int] = {}
    slots: list[Any] = []
    for slot in plan.slots:
        _, *rest = msgspec.structs.astuple(slot)
        slots.append((layouts.setdefault(slot.layout, len(layouts)), *rest))
    steps: list[GangRow | Move] = []
    for step in plan.steps:
        if isinstance(step, Gang):
            fields = msgspec.structs.asdict(step)
            steps.append(GangRow(**{**fields, "place": places.setdefault(step.place, len(places))}))
        else:
            steps.append(step)
    rows = [
        (each.shape, each.dtype, places.setdefault(each.place, len(places)), each.mesh, each.sharding)
        for each in layouts
    ]
    return PackedPlan(
        id=plan.id,
        program=plan.program,
        places=tuple(places),
        layouts=tuple(rows),
        codes=plan.codes,
        slots=tuple(slots),
        steps=tuple(steps),
        after=plan.after,
        results=plan.results,
    )


def unpack_plan(plan: PackedPlan) -> Plan:
    layouts = [
        Layout(shape, dtype, _at(plan.places, place), mesh, sharding)
        for shape, dtype, place, mesh, sharding in plan.layouts
    ]
    slots = [Slot(_at(layouts, row[0]), *row[1:]) for row in plan.slots]
    steps: list[Gang | Move] = []
    for step in plan.steps:
        if isinstance(step, GangRow):
            fields = msgspec.structs.asdict(step)
            steps.append(Gang(**{**fields, "place": _at(plan.places, step.place)}))
        else:
            steps.append(step)
    return Plan(plan.id, plan.program, plan.codes, tuple(slots), tuple(steps), plan.after, plan.results)


def _at(table: Sequence[T], number: int) -> T:
    if not 0 <= number < len(table):
        raise ValueError(f"{number} stands for nothing; the table has {len(table)}")
    return table[number]
