"""Pass: who reads a slot last, which moves send it, what is kept, and which output takes over whose memory.

A donation stands only where the devices' own order makes it safe. A slot that a move reads too is copied
instead of taken over: the device would have to wait for the network before it may overwrite.
"""

from __future__ import annotations

import msgspec

from ..plan import Gang, Slot
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
    """Drop donations that do not stand; let outputs take over the others where they are just as large."""
    if not isinstance(step, Gang) or not step.donated:
        return step
    donated = tuple(slot for slot in step.donated if slots[slot].last == index)
    free = list(donated)
    for output in step.outputs:
        fitting = [slot for slot in free if slots[slot].nbytes == slots[output].nbytes]
        if fitting:
            same = [slot for slot in fitting if slots[slot].layout == slots[output].layout]
            taken = (same or fitting)[0]
            free.remove(taken)
            slots[output] = msgspec.structs.replace(slots[output], takes=taken)
    return step if donated == step.donated else msgspec.structs.replace(step, donated=donated)
