"""Second pass: an input that lies otherwise than its reader wants it is resharded; each resharding is done
once.

- Other devices: a `Move`, right behind the gang that makes its source (arguments: first of all), so that the
  transfer is under way while later gangs compute. Exchanges stand there too.
- Same place, other sharding: a gang of its own, directly before its first reader. It cannot overlap with its
  own devices' work wherever it stands, since they run one thing at a time; early, it would hold up the gangs
  between, whose outputs other slices may be waiting for, and keep two copies alive for longer.
"""

from __future__ import annotations

import msgspec

from ..model import Code, Gang, Layout, Move, Node, Slot, canonical, is_local, shard_bytes
from .draft import Draft, Step

# A first guess at what a resharding gang takes, for policies and watchdogs; drivers measure or model it.
RESHARD_OVERHEAD = 2_000  # nanoseconds
RESHARD_BYTES = 50  # a nanosecond


def moves(draft: Draft) -> Draft:
    builder = _Builder(draft)
    for index, step in enumerate(draft.steps):
        if isinstance(step, Gang):
            builder.gang(index, step)
        else:
            builder.exchange(step)
    steps = builder.behind[-1] + [
        step
        for index in range(len(draft.steps))
        for step in (*builder.at.get(index, ()), *builder.behind.get(index, ()))
    ]
    return msgspec.structs.replace(
        draft, codes=tuple(builder.codes), slots=tuple(builder.slots), steps=tuple(steps)
    )


class _Builder:
    def __init__(self, draft: Draft) -> None:
        self.program, self.layouts = draft.program, draft.layouts
        self.codes, self.slots = list(draft.codes), list(draft.slots)
        self.at: dict[int, list[Step]] = {}  # in the place of a gang: its reshardings, then itself
        self.behind: dict[int, list[Step]] = {-1: []}  # behind it: moves of what it makes; -1: of arguments
        self._home = [-1] * len(draft.slots)  # by slot: behind which gang its moves stand
        self._done: dict[tuple[int, Layout], int] = {}  # (slot, layout in canonical form) -> slot
        self._reshard: dict[str, int] = {}  # key -> code

    def exchange(self, move: Move) -> None:
        home = self._home[move.target] = self._home[move.source]
        self.behind.setdefault(home, []).append(move)

    def gang(self, index: int, gang: Gang) -> None:
        node = self.program.nodes[gang.node]
        assert isinstance(node, Node)
        self.at[index] = []
        inputs = tuple(
            self._input(index, gang, slot, self.layouts[value])
            for slot, value in zip(gang.inputs, node.expects, strict=True)
        )
        for slot in gang.outputs:
            self._home[slot] = index
        donated = tuple(inputs[number] for number in node.donate)
        if inputs != gang.inputs or donated:
            gang = msgspec.structs.replace(gang, inputs=inputs, donated=donated)
        self.at[index].append(gang)

    def _input(self, index: int, gang: Gang, slot: int, wanted: Layout) -> int:
        """The slot from which the gang reads this input."""
        has = self.slots[slot].layout
        if has == wanted or (has.place == wanted.place and canonical(has) == canonical(wanted)):
            return slot
        key = (slot, canonical(wanted))
        found = self._done.get(key)
        if found is None:
            found = self._done[key] = len(self.slots)
            self.slots.append(Slot(wanted, shard_bytes(wanted), -1))
            if has.place == wanted.place:
                self.at[index].append(self._resharding(gang, slot, found))
            else:
                move = Move(f"move to {gang.name}", slot, found, False, gang.node)
                self.behind.setdefault(self._home[slot], []).append(move)
        return found

    def _resharding(self, gang: Gang, source: int, target: int) -> Gang:
        has, wanted = self.slots[source], self.slots[target]
        local = is_local(has.layout, wanted.layout)
        largest = max(has.nbytes, wanted.nbytes)
        return Gang(
            name=f"reshard for {gang.name}",
            computation=self._code(has.layout, wanted.layout),
            place=gang.place,
            inputs=(source,),
            outputs=(target,),
            donated=(),
            cost=RESHARD_OVERHEAD + largest // RESHARD_BYTES,
            temp=0 if local else largest,  # what is packed for the others
            collective=not local,
            irregular=False,
            node=-1,
        )

    def _code(self, has: Layout, wanted: Layout) -> int:
        key = f"reshard:{has.dtype}{list(has.shape)}:{_text(has)}->{_text(wanted)}"
        found = self._reshard.get(key)
        if found is None:
            found = self._reshard[key] = len(self.codes)
            self.codes.append(Code(key, "reshard"))
        return found


def _text(layout: Layout) -> str:
    mesh = "x".join(map(str, layout.mesh))
    return f"{mesh}[{';'.join(','.join(map(str, axes)) for axes in layout.sharding.dims)}]"
