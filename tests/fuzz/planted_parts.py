"""Bugs in what front ends need of core, planted for the fuzzer to find: programs that clients are told of.

Neighbours: `planted` and `planted_anew` have the others; `planting` searches them.
"""

from __future__ import annotations

from typing import Any

from core.controller.registrations import Registrations
from core.fanout.reduce import EqualReports, Reduction
from core.model import spans

from .draw import PARTS
from .planting import Patch, bug, nothing


@bug(
    "registrations of an old epoch",
    "a client is not told of a program whose code a new epoch has voided",
    first=PARTS,
)
def _(put: Patch) -> None:
    put(Registrations, "anew", nothing)


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
