"""Second pass: inserts a resharding for each input that is laid out differently than its reader expects.

Each resharding is done once, even if several gangs read its result.

- To other devices: a `Move`, placed right after the gang that makes its sources (before all gangs, for arguments),
  so that the transfer runs while later gangs compute. Exchanges and Reshards are placed in the same way. What one gang
  reads of what one gang has made is one move.
- To another sharding on the same devices: a gang of its own, placed directly before its first reader. An earlier
  place would not let it overlap with other work, since devices run one gang at a time. It would delay the gangs
  between, whose outputs other slices may wait for, and it would keep two copies of the array for longer. A Reshard
  on the same devices is such a gang, in its own place; it makes a copy also where the sharding is the same.
"""

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
        self._moves_of: dict[int, int] = {}  # by slot: its moves are in `moves_after` of this step; of an argument, -1
        self._makers: dict[int, int] = {}  # by slot: the gang that makes it
        self._resharded: dict[tuple[int, Layout], int] = {}  # (slot, layout in canonical form) -> slot
        self._reshard_codes: dict[str, int] = {}  # key -> code

    def stays(self, move: Move) -> bool:
        return self.slots[move.sources[0]].layout.place == self.slots[move.targets[0]].layout.place

    def reshard(self, index: int, move: Move) -> None:
        """A node that is a resharding on the devices that the arrays are on."""
        self.gangs[index] = [self._resharding(move.name, move.sources, move.targets, move.node)]
        self._moves_of.update(dict.fromkeys(move.targets, index))
        self._are_made(move)

    def _are_made(self, move: Move) -> None:
        """Gangs that read the arrays may want them as they are then."""
        for source, target in zip(move.sources, move.targets, strict=True):
            self._resharded.setdefault((source, canonical(self.slots[target].layout)), target)

    def move(self, move: Move) -> None:
        if not move.sparse:
            self._are_made(move)
        after = max(self._moves_of.get(source, -1) for source in move.sources)
        self._moves_of.update(dict.fromkeys(move.targets, after))
        self.moves_after.setdefault(after, []).append(move)

    def gang(self, index: int, gang: Gang) -> None:
        node = self.program.nodes[gang.node]
        assert isinstance(node, Node)
        self.gangs[index] = []
        together: dict[int, list[tuple[int, int]]] = {}  # moves for this gang, by the gang that makes their sources
        inputs = tuple(
            self._input(index, gang, slot, self.layouts[value], together)
            for slot, value in zip(gang.inputs, node.expects, strict=True)
        )
        for each in together.values():
            sources, targets = zip(*each, strict=True)
            move = Move(f"move to {gang.name}", sources, targets, False, gang.node)
            self.moves_after.setdefault(self._moves_of.get(sources[0], -1), []).append(move)
        self._moves_of.update(dict.fromkeys(gang.outputs, index))
        self._makers.update(dict.fromkeys(gang.outputs, index))
        donated = tuple(inputs[number] for number in node.donate)
        if inputs != gang.inputs or donated:
            gang = msgspec.structs.replace(gang, inputs=inputs, donated=donated)
        self.gangs[index].append(gang)

    def _input(
        self, index: int, gang: Gang, slot: int, wanted: Layout, together: dict[int, list[tuple[int, int]]]
    ) -> int:
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
                self.gangs[index].append(self._resharding(f"reshard for {gang.name}", (slot,), (found,)))
            else:
                # arguments, and what has come from elsewhere, are ready or fail one by one
                together.setdefault(self._makers.get(slot, ~slot), []).append((slot, found))
        return found

    def _resharding(self, name: str, sources: tuple[int, ...], targets: tuple[int, ...], node: int = -1) -> Gang:
        ends = [(self.slots[has], self.slots[wanted]) for has, wanted in zip(sources, targets, strict=True)]
        largest = [max(has.nbytes, wanted.nbytes) for has, wanted in ends]
        local = [is_local(has.layout, wanted.layout) for has, wanted in ends]
        return Gang(
            name=name,
            computation=self._code([(has.layout, wanted.layout) for has, wanted in ends]),
            place=ends[0][1].layout.place,
            inputs=sources,
            outputs=targets,
            donated=(),
            cost=RESHARD_OVERHEAD + sum(largest) // RESHARD_BYTES,
            # the buffers in which it packs data for other devices
            temp=sum(nbytes for nbytes, stays in zip(largest, local, strict=True) if not stays),
            collective=not all(local),
            irregular=False,
            node=node,
        )

    def _code(self, ends: list[tuple[Layout, Layout]]) -> int:
        key = "reshard:" + " ".join(
            f"{has.dtype}{list(has.shape)}:{_text(has)}->{_text(wanted)}" for has, wanted in ends
        )
        found = self._reshard_codes.get(key)
        if found is None:
            found = self._reshard_codes[key] = len(self.codes)
            self.codes.append(Code(key, "reshard"))
        return found


def _text(layout: Layout) -> str:
    mesh = "x".join(map(str, layout.mesh))
    return f"{mesh}[{';'.join(','.join(map(str, axes)) for axes in layout.sharding.dims)}]"
