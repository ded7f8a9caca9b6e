"""What the header of a run says to all hosts that have the same part in its plan: which buffer each slot is.

Executors that stand for such hosts share the plan, and so what its last header said: it is read once for all of them.

Neighbours: `executor` begins a run with it; `plans` says which arguments a plan has. The function that matters:
`names_of`.
"""

from collections.abc import Sequence

import msgspec

from ..model import Layout
from ..protocol import RunHeader
from .plans import HostCall, HostPlan

Label = tuple[int, int]  # (client, the client's name for the buffer)
Labels = dict[int, tuple[Label, ...]]  # by slot

NO_LITERALS: dict[int, bytes] = {}  # runs without any share these
NO_LABELS: Labels = {}


class SlotIds(dict[int, int]):
    """The buffers of a run by slot, of which only some arguments need to be said. Equal ones are of equal runs."""

    def __init__(self, base: int) -> None:
        super().__init__()
        self.base = base

    def __missing__(self, slot: int) -> int:
        return self.base + slot


class RunNames(msgspec.Struct, eq=False, frozen=True):
    """`ids`: the buffers by slot. `literal`: contents that came with the call, by argument. `labels`: the clients that
    were promised a slot. `acts`: arguments with which something is to be done, each with its slot, buffer, and layout
    and contents of a literal that is made on this host."""

    header: RunHeader
    call: HostCall
    ids: Sequence[int] | SlotIds
    literal: dict[int, bytes]
    labels: Labels
    acts: tuple[tuple[int, int, Layout | None, bytes], ...]


def names_of(header: RunHeader, plan: HostPlan) -> RunNames | None:
    """None if it has too few arguments."""
    known: RunNames | None = plan.named
    if known is not None and known.header is header:
        return known
    args = header.args
    widths = tuple([1 if isinstance(arg, int) else arg.count for arg in args])
    count = sum(widths)
    if count < plan.arity:
        return None
    call = plan.call(widths)
    literal = dict(header.literals) if header.literals else NO_LITERALS
    labels = NO_LABELS
    if header.kept:
        labels = {}
        for slot, client, name in header.kept:
            labels[slot] = (*labels.get(slot, ()), (client, name))
    ids: list[int] | SlotIds
    ids = list(range(header.base, header.base + plan.slots)) if len(widths) == count else SlotIds(header.base)
    acts: list[tuple[int, int, Layout | None, bytes]] = []
    for slot, number, at, arg, _, layout in call.arguments:
        named = args[number]
        ident = named if isinstance(named, int) else named.first + at
        if ident < 0:  # a literal may have no name of its own
            ident = ids[slot]
        else:
            ids[slot] = ident
        made = layout if arg in literal else None
        if made is not None or slot in labels:
            acts.append((slot, ident, made, literal.get(arg, b"")))
    plan.named = found = RunNames(header, call, ids, literal, labels, tuple(acts))
    return found
