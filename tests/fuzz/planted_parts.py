"""Bugs in what front ends need of core, planted for the fuzzer to find: sub-slices, and programs that are told of.

Neighbours: `planted` and `planted_anew` have the others; `planting` searches them.
"""

from __future__ import annotations

from typing import Any

from core.controller.registrations import Registrations
from core.fanout.reduce import EqualReports, Reduction
from core.model import spans
from core.slices.resources import Resources

from .draw import PARTS
from .planting import Patch, bug, nothing


@bug(
    "registrations of an old epoch",
    "a client is not told of a program whose code a new epoch has voided",
    first=PARTS,
)
def _(put: Patch) -> None:
    put(Registrations, "anew", nothing)


@bug(
    "told before the slice has moved",
    "what was compiled for hosts that are gone counts as compiled",
    first=PARTS,
)
def _(put: Patch) -> None:
    look = Registrations._look

    def hasty(self: Registrations, each: Any, now: int) -> None:
        names = [spec.name for spec in each.record.ir.slices]
        each.places = tuple(self._resources.place(each.record.session.number, name) for name in names)
        look(self, each, now)

    put(Registrations, "_look", hasty)


@bug("what hosts say of code is lost", "a relay drops what another host says about code", first=PARTS)
def _(put: Patch) -> None:
    kept = Reduction.put

    def drop(self: Reduction, report: Any, hosts: spans.Spans) -> None:
        kept(self, report, hosts)
        for group in self._groups.values():
            assert isinstance(group, EqualReports)
            if len(group.hosts) > 1:
                group.about = b""

    put(Reduction, "put", drop)


@bug("sub-slices stay", "a sub-slice is not moved with the slice that it is a part of", first=PARTS)
def _(put: Patch) -> None:
    place, bind = Resources.place, Resources.bind
    first: dict[tuple[int, int, str], Any] = {}

    def stays(self: Resources, session: int, name: str) -> Any:
        found = place(self, session, name)
        spec = self._parts.get(session, name)
        return first.setdefault((id(self), session, name), found) if spec and found else found

    def stays_bound(self: Resources, session: int, spec: Any) -> Any:
        found = bind(self, session, spec)
        was = stays(self, session, spec.name)
        return type(found)(was) if spec.of and was is not None and hasattr(found, "place") else found

    put(Resources, "place", stays)
    put(Resources, "bind", stays_bound)
