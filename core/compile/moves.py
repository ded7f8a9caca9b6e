"""Second pass: inserts a resharding for each input that is laid out differently than its reader expects.

Each resharding is done once, even if several gangs read its result.

- To other devices: a `Move`, placed right after the gang that makes its source (before all gangs, for an argument),
  so that the transfer runs while later gangs compute. Exchanges and Reshards are placed in the same way.
- To another sharding on the same devices: a gang of its own, placed directly before its first reader. An earlier
  place would not let it overlap with other work, since devices run one gang at a time. It would delay the gangs
  between, whose outputs other slices may wait for, and it would keep two copies of the array for longer. A Reshard
  on the same devices is such a gang, in its own place; it makes a copy also where the sharding is the same.
"""

from __future__ import annotations

import msgspec

from ..model import Code, Gang, Layout, Move, Node, Slot, canonical, is_local, shard_bytes
from .draft import Draft, Step

# A rough estimate of the time of a resharding gang, for policies and watchdogs. Drivers measure or model it.
RESHARD_OVERHEAD = 2_000  # nanoseconds
RESHARD_BYTES = 50  # bytes per nanosecond


def moves(draft: Draft) -> Draft:
    builder = _MoveBuilder(draft)
    for index, step in enumerate(draft.steps):
        if isinstance(step, Gang):
            builder.gang(index, step)
        elif not step.sparse and builder.stays(step):
            builder.reshard(index, step)
        else:
            builder.move(step)
    steps = builder.moves_after[-1] + [
        step
        for index in range(len(draft.steps))
        for step in (*builder.gangs.get(index, ()), *builder.moves_after.get(index, ()))
    ]
    return msgspec.structs.replace(draft, codes=tuple(builder.codes), slots=tuple(builder.slots), steps=tuple(steps))


class _MoveBuilder:
    def __init__(self, draft: Draft) -> None:
        self.program, self.layouts = draft.program, draft.layouts
        self.codes, self.slots = list(draft.codes), list(draft.slots)
        # By step of the draft:
        self.gangs: dict[int, list[Step]] = {}  # the reshardings for a gang, then the gang
        self.moves_after: dict[int, list[Step]] = {-1: []}  # the moves of its outputs; -1: of arguments
        self._moves_of = [-1] * len(draft.slots)  # by slot: its moves are in `moves_after` of this step
        self._resharded: dict[tuple[int, Layout], int] = {}  # (slot, layout in canonical form) -> slot
        self._reshard_codes: dict[str, int] = {}  # key -> code

    def stays(self, move: Move) -> bool:
        return self.slots[move.source].layout.place == self.slots[move.target].layout.place

    def reshard(self, index: int, move: Move) -> None:
        """A node that is a resharding on the devices that the array is on."""
        self.gangs[index] = [self._resharding(move.name, move.source, move.target, move.node)]
        self._moves_of[move.target] = index
        self._is_made(move)

    def _is_made(self, move: Move) -> None:
        """Gangs that read the array may want it as it is then."""
        self._resharded.setdefault((move.source, canonical(self.slots[move.target].layout)), move.target)

    def move(self, move: Move) -> None:
        if not move.sparse:
            self._is_made(move)
        after = self._moves_of[move.target] = self._moves_of[move.source]
        self.moves_after.setdefault(after, []).append(move)

    def gang(self, index: int, gang: Gang) -> None:
        node = self.program.nodes[gang.node]
        assert isinstance(node, Node)
        self.gangs[index] = []
        inputs = tuple(
            self._input(index, gang, slot, self.layouts[value])
            for slot, value in zip(gang.inputs, node.expects, strict=True)
        )
        for slot in gang.outputs:
            self._moves_of[slot] = index
        donated = tuple(inputs[number] for number in node.donate)
        if inputs != gang.inputs or donated:
            gang = msgspec.structs.replace(gang, inputs=inputs, donated=donated)
        self.gangs[index].append(gang)

    def _input(self, index: int, gang: Gang, slot: int, wanted: Layout) -> int:
        """Return the slot from which the gang reads this input: its own, or one that a resharding makes."""
        has = self.slots[slot].layout
        if has == wanted or (has.place == wanted.place and canonical(has) == canonical(wanted)):
            return slot
        key = (slot, canonical(wanted))
        found = self._resharded.get(key)
        if found is None:
            found = self._resharded[key] = len(self.slots)
            self.slots.append(Slot(wanted, shard_bytes(wanted), -1))
            if has.place == wanted.place:
                self.gangs[index].append(self._resharding(f"reshard for {gang.name}", slot, found))
            else:
                move = Move(f"move to {gang.name}", slot, found, False, gang.node)
                self.moves_after.setdefault(self._moves_of[slot], []).append(move)
        return found

    def _resharding(self, name: str, source: int, target: int, node: int = -1) -> Gang:
        has, wanted = self.slots[source], self.slots[target]
        local = is_local(has.layout, wanted.layout)
        largest = max(has.nbytes, wanted.nbytes)
        return Gang(
            name=name,
            computation=self._code(has.layout, wanted.layout),
            place=wanted.layout.place,
            inputs=(source,),
            outputs=(target,),
            donated=(),
            cost=RESHARD_OVERHEAD + largest // RESHARD_BYTES,
            temp=0 if local else largest,  # the buffer in which it packs data for other devices
            collective=not local,
            irregular=False,
            node=node,
        )

    def _code(self, has: Layout, wanted: Layout) -> int:
        key = f"reshard:{has.dtype}{list(has.shape)}:{_text(has)}->{_text(wanted)}"
        found = self._reshard_codes.get(key)
        if found is None:
            found = self._reshard_codes[key] = len(self.codes)
            self.codes.append(Code(key, "reshard"))
        return found


def _text(layout: Layout) -> str:
    mesh = "x".join(map(str, layout.mesh))
    return f"{mesh}[{';'.join(','.join(map(str, axes)) for axes in layout.sharding.dims)}]"
