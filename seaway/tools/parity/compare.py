"""Compares two runs of one program: two `collect.Seen` go in, a `Comparison` with rows and differences comes out.

Equal means: the same gangs entered each island in the same sequence, each run had the same steps, its buffers were made
and freed at the same steps, it ended alike, and nothing is left over. If orders differ, the first different decision is
shown with the decisions before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from core.model import Spans, spans

from ...wording import plural
from .collect import ClusterSeen, Decision, RunKey, RunSeen

HISTORY = 8  # decisions before the one that differs, on each side
SHOWN = 3  # differences of one kind


class ComparedRow(msgspec.Struct, frozen=True):
    """One thing that is compared."""

    what: str
    left: str
    right: str
    equal: bool


class Comparison(msgspec.Struct):
    """`left`, `right`: names of the two sides."""

    left: str
    right: str
    rows: list[ComparedRow] = []
    differences: list[str] = []
    gangs: tuple[int, int] = (0, 0)  # gangs that ran on each side, if counted

    @property
    def equal(self) -> bool:
        return all(row.equal for row in self.rows)

    def lines(self) -> Iterator[str]:
        cells = [("", self.left, self.right, "")]
        cells += [(row.what, row.left, row.right, "equal" if row.equal else "DIFFERS") for row in self.rows]
        widths = [max(len(line[at]) for line in cells) for at in range(3)]
        for line in cells:
            yield "  ".join(cell.ljust(width) for cell, width in zip(line, [*widths, 0], strict=True)).rstrip()
        for difference in self.differences:
            yield ""
            yield difference


def compare(left: ClusterSeen, right: ClusterSeen, names: tuple[str, str] = ("simulated", "real")) -> Comparison:
    found = Comparison(*names, gangs=(sum(map(len, left.orders)), sum(map(len, right.orders))))
    for island, name in enumerate(left.islands):
        _order(found, island, name, left, right)
    _runs(found, left, right)
    _puts(found, left, right)
    _left(found, left, right)
    return found


# --- orders ---------------------------------------------------------------------------------------------------------


def _order(found: Comparison, island: int, name: str, left: ClusterSeen, right: ClusterSeen) -> None:
    one, other = left.orders[island], right.orders[island]
    hashes = left.hash.island(island), right.hash.island(island)
    found.rows.append(ComparedRow(f"order of island {name!r}, {_gangs(one, other)}", *hashes, one == other))
    if one != other:
        found.differences.append("\n".join(_first(found, name, one, other)))


def _gangs(one: Sequence[Decision], other: Sequence[Decision]) -> str:
    return plural(len(one), "gang") if len(one) == len(other) else f"{len(one)} and {len(other)} gangs"


def _first(found: Comparison, name: str, one: Sequence[Decision], other: Sequence[Decision]) -> Iterator[str]:
    at = apart(one, other)
    yield f"the first decision that differs on island {name!r} is number {at}"
    yield from history(at, {found.left: one, found.right: other}, "(nothing more entered)")
    if by_device(one) == by_device(other):
        yield "  each device got its gangs in the same sequence: the gangs that changed places share no device"


def apart(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The first place at which they differ."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def history(at: int, sides: Mapping[str, Sequence[Any]], end: str) -> Iterator[str]:
    """What stands there on each side, and some of what stands before."""
    for side, order in sides.items():
        yield f"  {side}:"
        yield from (f"    {number:6}  {order[number]}" for number in range(max(0, at - HISTORY), min(at, len(order))))
        yield f"  > {at:6}  {order[at] if at < len(order) else end}"


def by_device(order: Sequence[Decision]) -> dict[int, list[Decision]]:
    """Each device's gangs, in their sequence."""
    found: dict[int, list[Decision]] = {}
    for decision in order:
        for device in spans.items(decision.devices):
            found.setdefault(device, []).append(decision)
    return found


# --- runs -----------------------------------------------------------------------------------------------------------


def _runs(found: Comparison, left: ClusterSeen, right: ClusterSeen) -> None:
    texts: list[tuple[str, Callable[[RunSeen], Any], Callable[[Any, Any], str]]] = [
        ("programs", lambda run: run.program, _both),
        ("steps of each run", lambda run: run.steps, _counts),
        ("their sequence on each place", lambda run: run.sequences, _sequence),
        ("lifetimes of its buffers", lambda run: run.slots, _slots),
        ("buffers freed by a word to hosts", lambda run: run.freed, _counts),
        ("how it ended, and how often it was said", lambda run: run.outcomes, _both),
    ]
    here, there = set(left.runs), set(right.runs)
    found.rows.append(ComparedRow("runs", str(len(here)), str(len(there)), here == there))
    for side, only in ((found.left, here - there), (found.right, there - here)):
        found.differences += [f"only the {side} side has {key}" for key in sorted(only)[:SHOWN]]
    both = sorted(here & there)
    for what, take, words in texts:
        unlike = [key for key in both if take(left.runs[key]) != take(right.runs[key])]
        totals = str(_total(take, left, both)), str(_total(take, right, both))
        found.rows.append(ComparedRow(what, *totals, not unlike))
        for key in unlike[:SHOWN]:
            differ = words(take(left.runs[key]), take(right.runs[key]))
            found.differences.append(f"{what}: {key}, {left.runs[key].program!r}: {differ}")


def _total(take: Callable[[RunSeen], Any], side: ClusterSeen, keys: Sequence[RunKey]) -> int:
    values = [take(side.runs[key]) for key in keys]
    return sum(value.total() if isinstance(value, Counter) else 1 if isinstance(value, str) else len(value)
               for value in values)  # fmt: skip


def _both(one: Any, other: Any) -> str:
    return f"{one!r} and {other!r}"


def _counts(one: Counter[Any], other: Counter[Any]) -> str:
    less, more = (one - other), (other - one)
    return f"only on the first side {_some(less)}; only on the second {_some(more)}"


def _some(counted: Counter[Any]) -> str:
    def text(item: Any) -> str:
        return item if isinstance(item, str) else f"{item[1]} of step {item[2]} on island {item[0]}"

    named = [f"{text(item)}{f' ({number} times)' if number > 1 else ''}" for item, number in sorted(counted.items())]
    return ", ".join(named[:HISTORY]) or "nothing"


def _sequence(one: Mapping[Spans, Sequence[int]], other: Mapping[Spans, Sequence[int]]) -> str:
    where = next(where for where in sorted({*one, *other}) if one.get(where) != other.get(where))
    return f"on devices {spans.text(where)}, steps {one.get(where, [])} and {other.get(where, [])}"


def _slots(one: Mapping[int, Any], other: Mapping[int, Any]) -> str:
    slot = next(slot for slot in sorted({*one, *other}) if one.get(slot) != other.get(slot))
    return f"slot {slot}: {one.get(slot, 'is not there')}; and {other.get(slot, 'is not there')}"


# --- the rest -------------------------------------------------------------------------------------------------------


def _puts(found: Comparison, left: ClusterSeen, right: ClusterSeen) -> None:
    same = left.puts == right.puts
    found.rows.append(ComparedRow("clients' buffers", str(left.puts.total()), str(right.puts.total()), same))
    if not same:
        found.differences.append(f"clients' buffers: {_counts(left.puts, right.puts)}")


def _left(found: Comparison, left: ClusterSeen, right: ClusterSeen) -> None:
    """Compare what is left over. Both sides must have nothing."""
    one, other = (
        ", ".join(f"{number} {what}" for what, number in side.left.items() if number) or "nothing"
        for side in (left, right)
    )
    found.rows.append(ComparedRow("left over at the end", one, other, one == other == "nothing"))
