"""Planted bugs of slices that a policy places."""

from __future__ import annotations

from typing import Any

from core.controller.placements import Placements
from core.model import Place
from core.slices import Resources

from .draw import PLACES
from .planting import Patch, bug, nothing


@bug("gone for good", "a slice that a policy has suspended never wants its devices back", first=PLACES)
def _(put: Patch) -> None:
    put(Placements, "_look", nothing)


@bug("started where others are", "a policy may start a slice on devices that others have alone", first=PLACES)
def _(put: Patch) -> None:
    good = Resources.could_start

    def could_start(self: Resources, *args: Any, **more: Any) -> Place | None:
        return good(self, *args, **{**more, "anyway": True})

    put(Resources, "could_start", could_start)
