"""Pass: finds out when each slot can be freed, and which output takes over the memory of which donated slot.

A donation is kept only if the devices' own order makes it safe. A donated slot that a move reads too is copied
instead: otherwise the device would have to wait for the network before it could overwrite the slot.
"""

from collections.abc import Callable

import msgspec

from ..model import Gang, Slot
from .draft import Draft, Step, readers


def lifetimes(draft: Draft) -> Draft:
    kept = set(draft.results)
    slots: list[Slot] = []
    for number, read_by in enumerate(readers(draft.steps, len(draft.slots))):
        slot = draft.slots[number]
        senders = tuple(index for index in read_by if not isinstance(draft.steps[index], Gang))
        dies_in_order = number not in kept and not senders
        slots.append(
            msgspec.structs.replace(
                slot,
                keep=number in kept,
                last=(read_by[-1] if read_by else slot.maker) if dies_in_order else -1,
                senders=senders,
            )
        )
    steps = tuple(_donate(index, step, slots) for index, step in enumerate(draft.steps))
    return msgspec.structs.replace(draft, slots=tuple(slots), steps=steps)


def _donate(index: int, step: Step, slots: list[Slot]) -> Step:
    """Drop unsafe donations. Let outputs take over the memory of the other donated slots, if the sizes are equal."""
    if not isinstance(step, Gang) or not step.donated:
        return step
    donated = tuple(slot for slot in step.donated if slots[slot].last == index)
    for output, taken in _matches(step.outputs, donated, slots).items():
        slots[output] = msgspec.structs.replace(slots[output], takes=taken)
    return step if donated == step.donated else msgspec.structs.replace(step, donated=donated)


def _matches(outputs: tuple[int, ...], donated: tuple[int, ...], slots: list[Slot]) -> dict[int, int]:
    """Return, by output, the donated slot that it takes over: one of the same layout, else one of the same size."""
    found: dict[int, int] = {}
    kinds: tuple[Callable[[Slot], object], ...] = (lambda slot: slot.layout, lambda slot: slot.nbytes)
    for kind in kinds:
        free: dict[object, list[int]] = {}
        taken = set(found.values())
        for slot in reversed(donated):
            if slot not in taken:
                free.setdefault(kind(slots[slot]), []).append(slot)
        for output in outputs:
            fitting = free.get(kind(slots[output]))
            if output not in found and fitting:
                found[output] = fitting.pop()
    return found
