"""Words why a slice waits: for other slices, or for hosts and devices that are not up."""

from collections.abc import Sequence

from ..model import Island, Place, device_spans, spans
from .bindings import Binding
from .inventory import Inventory
from .refusal_texts import some
from .refusals import Refusals


def blockers(island: Island, claim: Place, rivals: Sequence[Binding], earlier: Sequence[Binding]) -> str:
    """Names the slices that have the devices that it claims, or will have them first."""
    wanted = device_spans(claim)
    places = [(b, place) for b in rivals for place in b.places]
    here = list(dict.fromkeys(b for b, place in places if spans.overlap(device_spans(place), wanted)))
    first = [b for b in earlier if b.claim and spans.overlap(device_spans(b.claim), wanted)]
    text = f"devices {spans.text(wanted[:8])}{', ...' if len(wanted) > 8 else ''} of island {island.name!r}"
    for how, those in (("bound by", here), ("claimed before by", first)):
        if those:
            text += f", {how} {some([f'slice {b.spec.name!r} of session {b.session}' for b in those])}"
    return text


def missing(inventories: Sequence[Inventory], refusals: Refusals) -> str:
    """Names the hosts and devices that are not up, for a slice with too few devices."""
    parts = []
    for inventory in inventories:
        where = f"of island {inventory.island.name!r}"
        for state in ("absent", "lost", "draining"):
            hosts = inventory.hosts_in(state)
            if hosts:
                parts.append(f"hosts {spans.text(hosts)} {where} ({state})")
        if inventory.cordoned:
            parts.append(f"hosts {spans.text(spans.of(sorted(inventory.cordoned)))} {where} (cordoned)")
        broken = inventory.broken()
        if broken:
            parts.append(f"devices {spans.text(broken)} {where} (lost)")
    return "; ".join([*parts, *refusals.words(inventory.island.index for inventory in inventories)])
