"""Pass: numbers the slots, arguments first, then in the order of the steps that make them."""

import msgspec

from ..model import Gang, Slot
from .draft import Draft, Step, makes


def number(draft: Draft) -> Draft:
    arguments = len(draft.program.args)
    new = {slot: slot for slot in range(arguments)}
    slots: list[Slot] = list(draft.slots[:arguments])
    for index, step in enumerate(draft.steps):
        for slot in makes(step):
            new[slot] = len(slots)
            slots.append(msgspec.structs.replace(draft.slots[slot], maker=index))
    steps = tuple(_renamed(step, new) for step in draft.steps)
    results = tuple(new[slot] for slot in draft.results)
    return msgspec.structs.replace(draft, slots=tuple(slots), steps=steps, results=results)


def _renamed(step: Step, new: dict[int, int]) -> Step:
    replace = msgspec.structs.replace
    if not isinstance(step, Gang):
        sources, targets = (tuple(new[slot] for slot in ends) for ends in (step.sources, step.targets))
        return replace(step, sources=sources, targets=targets)
    return replace(
        step,
        inputs=tuple(new[slot] for slot in step.inputs),
        outputs=tuple(new[slot] for slot in step.outputs),
        donated=tuple(new[slot] for slot in step.donated),
    )
