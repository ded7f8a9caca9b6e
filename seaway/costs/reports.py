"""Parts of a cost that the TPU compiler and the roofline share: the tally of the text, memory, warnings, versions."""

from __future__ import annotations

import importlib.metadata

from sim.hardware import Chip

from ..errors import CostError
from .cost import MemoryUse
from .hlo import HloError, Rates, Tally, parse, tally

MADE_BY = ("jax", "jaxlib", "libtpu", "seaway")


def read(text: str, name: str, rates: Rates, *, fused: bool = True) -> Tally:
    try:
        return tally(parse(text), rates, fused=fused)
    except HloError as error:
        made_by = ", ".join(f"{package} {version}" for package, version in versions().items())
        raise CostError(
            f"the compiled text of {name!r} cannot be read: {error}. It was written by {made_by}; "
            "this reader knows jax 0.10 and 0.12 with libtpu 0.0.42 and 0.0.50"
        ) from None


def figures(chip: Chip) -> str:
    """The figures of a chip that a cost depends on, as a part of the cache's key."""
    return f"{chip.name} {chip.peak_flops} {chip.hbm_bandwidth} {chip.clock_hz}"


def doubts(found: Tally) -> list[str]:
    """Warnings of what the figures leave out or know only roughly."""
    texts = []
    if found.unknown_loops:
        texts.append(f"{len(found.unknown_loops)} loops run until the data say so, and are counted once")
    if found.silent:
        kinds = ", ".join(dict.fromkeys(found.silent))
        texts.append(f"nothing is known of the time of {len(found.silent)} custom calls: {kinds}")
    if irregular := [one for one in found.collectives() if not one.regular]:
        texts.append(
            f"{len(irregular)} collectives have groups that are described by the nearest regular ones"
        )
    return texts


def memory(sizes: dict[str, int]) -> MemoryUse:
    parts = {key: sizes.get(key, 0) for key in ("argument", "output", "alias", "temp")}
    together = parts["argument"] + parts["output"] - parts["alias"] + parts["temp"]
    return MemoryUse(
        **parts, code=sizes.get("generated_code", 0), peak=max(sizes.get("peak_memory", 0), together)
    )


def versions() -> dict[str, str]:
    found = {}
    for package in MADE_BY:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
