"""The packed form of a plan on the wire: each place and each layout is written once and then named by number.

Places and layouts are the largest parts of a plan, and many slots and gangs share one. Only `codec` uses the packed
form: it packs before it encodes, and unpacks after it decodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from ..model import Code, Gang, Layout, Move, Place, Plan, Sharding, Slot, Spans
from ..protocol import Ordered, RunHeader, Step

T = TypeVar("T")
LayoutRow = tuple[tuple[int, ...], str, int, tuple[int, ...], Sharding]  # a Layout, with its place by number
SlotRow = tuple[int, int, int, int, int, bool, int, tuple[int, ...]]  # a Slot, with its layout by number


class GangRow(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A Gang, with its place by number."""

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
    steps: int


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
    """An `Ordered` with packed plans. Without plans it has the same bytes as the `Ordered`."""

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
    """Invert `pack`. Raise ValueError if a number names no place or layout."""
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
    packed = {"places": tuple(places), "layouts": tuple(rows), "slots": tuple(slots), "steps": tuple(steps)}
    return PackedPlan(**{**msgspec.structs.asdict(plan), **packed})


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
        raise ValueError(f"there is no entry {number}; the table has {len(table)}")
    return table[number]
