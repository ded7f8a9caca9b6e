"""Pass: lists the codes that hosts must compile, each once.

A code is a computation at one place, for one set of layouts. Gangs that differ in these get different codes, even if
they run the same computation.
"""

import msgspec

from ..model import Code, Gang, Layout, canonical
from .draft import Draft, Step

Key = tuple[str, str, tuple[Layout, ...], tuple[Layout, ...], tuple[int, ...], object]


def codes(draft: Draft) -> Draft:
    found: list[Code] = []
    known: dict[Key, int] = {}
    steps: list[Step] = []
    for index, step in enumerate(draft.steps):
        if isinstance(step, Gang):
            key = _key(draft, step)
            code = known.get(key)
            if code is None:
                code = known[key] = len(found)
                found.append(msgspec.structs.replace(draft.codes[step.computation], step=index))
            if code != step.computation:
                step = msgspec.structs.replace(step, computation=code)
        steps.append(step)
    return msgspec.structs.replace(draft, codes=tuple(found), steps=tuple(steps))


def _key(draft: Draft, gang: Gang) -> Key:
    """Return all that makes gangs share a code."""
    # Donated inputs are part of the compiled code. The place is listed too, because a gang may have no layouts.
    code = draft.codes[gang.computation]
    position = {slot: number for number, slot in enumerate(gang.inputs)} if gang.donated else {}
    return (
        code.key,
        code.code,
        tuple(canonical(draft.slots[slot].layout) for slot in gang.inputs),
        tuple(canonical(draft.slots[slot].layout) for slot in gang.outputs),
        tuple(position[slot] for slot in gang.donated),
        gang.place,
    )
