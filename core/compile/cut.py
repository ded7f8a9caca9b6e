"""Cuts a plan for the hosts of one island. Its size does not depend on the number of hosts.

All indices stay the same. Entries that the island does not need are blank: a gang on no device, a slot of no bytes.
So code that reads a plan need not know whether it was cut.
"""

from ..model import Code, Gang, Layout, Move, Place, Plan, Sharding, Slot

NOWHERE = Place(-1, ())
BLANK_SLOT = Slot(Layout((0,), "bool", NOWHERE, (), Sharding()), 0, -1, keep=True)
BLANK_STEP = Gang("", -1, NOWHERE, (), (), (), 0, 0, False, False, -1)
BLANK_CODE = Code("", "", -1)


def cut(plan: Plan, island: int) -> Plan:
    """Keep the island's gangs, the moves that leave or reach it, and the slots and codes that these use.

    `after` is dropped: hosts learn of each step when it has entered an order.
    """
    steps = tuple(step if _concerns(plan, step, island) else BLANK_STEP for step in plan.steps)
    # also if no step reads it
    slots = {slot for slot in plan.results if plan.slots[slot].layout.place.island == island}
    codes: set[int] = set()
    for step in steps:
        if isinstance(step, Move):
            slots.update(step.sources, step.targets)
        elif step is not BLANK_STEP:
            slots.update(step.inputs, step.outputs)
            codes.add(step.computation)
    return Plan(
        plan.id,
        plan.program,
        tuple(code if number in codes else BLANK_CODE for number, code in enumerate(plan.codes)),
        tuple(slot if number in slots else BLANK_SLOT for number, slot in enumerate(plan.slots)),
        steps,
        (),
        (),
    )


def _concerns(plan: Plan, step: Gang | Move, island: int) -> bool:
    if isinstance(step, Gang):
        return step.place.island == island
    return island in [plan.slots[end].layout.place.island for end in (step.sources[0], step.targets[0])]
