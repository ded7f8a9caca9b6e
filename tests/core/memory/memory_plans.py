"""Makes plans by hand and at random, for tests of device memory: six devices on two islands."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from core.compile.draft import reads
from core.model.place import Place, line
from core.model.plan import Code, Gang, Layout, Move, Plan, Slot
from core.model.program import Sharding

DEVICES = 6


class Draft:
    """Makes a plan by hand: call `arg`, `gang` and `move`, then `plan`."""

    def __init__(self, ident: int) -> None:
        self.ident = ident
        self.places: list[Place] = []
        self.sizes: list[int] = []
        self.maker: list[int] = []
        self.takes: dict[int, int] = {}
        self.steps: list[Gang | Move] = []
        self.kept: set[int] = set()
        self.dead: set[int] = set()  # slots that were donated

    def slot(self, place: Place, nbytes: int, maker: int) -> int:
        self.places.append(place)
        self.sizes.append(nbytes)
        self.maker.append(maker)
        return len(self.sizes) - 1

    def arg(self, place: Place, nbytes: int) -> int:
        return self.slot(place, nbytes, -1)

    def gang(
        self, place: Place, inputs: tuple[int, ...], outputs: tuple[int, ...], temp: int = 0,
        *, donate: tuple[int, ...] = (), takes: bool = True, irregular: bool = False,
    ) -> tuple[int, ...]:  # fmt: skip
        made = tuple(self.slot(place, nbytes, len(self.steps)) for nbytes in outputs)
        for out, taken in zip(made, donate, strict=False):
            if takes and self.places[taken] == place:
                self.takes[out] = taken
        self.dead.update(donate)
        self.steps.append(Gang("g", 0, place, inputs, made, donate, 1, temp, True, irregular, len(self.steps)))
        return made

    def move(self, sources: Sequence[int], place: Place) -> tuple[int, ...]:
        targets = tuple(self.slot(place, self.sizes[source], len(self.steps)) for source in sources)
        self.steps.append(Move("m", tuple(sources), targets, False, len(self.steps)))
        return targets

    def keep(self, *slots: int) -> None:
        self.kept.update(slots)

    def readers(self, slot: int) -> list[int]:
        return [at for at, step in enumerate(self.steps) if slot in reads(step)]

    def plan(self) -> Plan:
        slots, args = [], 0
        for at, (place, nbytes, maker) in enumerate(zip(self.places, self.sizes, self.maker, strict=True)):
            readers = self.readers(at)
            senders = tuple(step for step in readers if isinstance(self.steps[step], Move))
            last = -1 if senders or not readers else readers[-1]
            layout = Layout((nbytes,), "int8", place, (place.size,), Sharding())
            arg = args if maker < 0 else -1
            args += maker < 0
            keep = at in self.kept
            slots.append(Slot(layout, nbytes, maker, self.takes.get(at, -1), arg, keep, last, senders))
        return Plan(
            self.ident, "p", (Code("k", "c"),), tuple(slots), tuple(self.steps), self.after(), tuple(sorted(self.kept))
        )

    def after(self) -> tuple[tuple[int, ...], ...]:
        """Return the makers of what a step reads, and for a gang the gang before it on each of its devices."""
        latest: dict[int, int] = {}
        found = []
        for at, step in enumerate(self.steps):
            before = {self.maker[slot] for slot in reads(step)} - {-1}
            if isinstance(step, Gang):
                before |= {latest[d] for d in step.place.devices() if d in latest}
                latest.update((d, at) for d in step.place.devices())
            found.append(tuple(sorted(before)))
        return tuple(found)


def draw_place(rng: Random) -> Place:
    low, high = rng.choice([(0, 4), (4, 6)])
    first = rng.randrange(low, high)
    return line(low // 4, first, rng.randint(1, high - first))


def draw_plan(rng: Random, ident: int, steps: int = 6, size: int = 24) -> Plan:
    draft = Draft(ident)
    places = [draw_place(rng) for _ in range(rng.randint(1, 3))]
    for _ in range(rng.randint(0, 2)):
        draft.arg(rng.choice(places), rng.choice([4, 8, size]))
    for _ in range(rng.randint(1, steps)):
        live = [slot for slot in range(len(draft.sizes)) if slot not in draft.dead]
        if live and rng.random() < 0.35:
            source = rng.choice(live)
            apart = [p for p in places if not set(p.devices()) & set(draft.places[source].devices())]
            if apart:
                along = [slot for slot in live if draft.places[slot] == draft.places[source]]
                draft.move((source, *rng.sample(along, rng.randint(0, min(2, len(along))))), rng.choice(apart))
            continue
        place = rng.choice(places)
        inside = [slot for slot in live if set(draft.places[slot].devices()) <= set(place.devices())]
        inputs = tuple(rng.sample(inside, min(len(inside), rng.randint(0, 2))))
        moves = [slot for slot in inputs if any(isinstance(draft.steps[r], Move) for r in draft.readers(slot))]
        free = [slot for slot in inputs if slot not in moves and slot not in draft.kept]
        donate = tuple(slot for slot in free if rng.random() < 0.4)
        same = draft.sizes[donate[0]] if donate and rng.random() < 0.7 else rng.randint(0, size)
        outputs = (same, rng.randint(1, size))[: rng.randint(1, 2)]
        irregular = not donate and rng.random() < 0.3
        temp = rng.choice([0, 0, 5, size])
        takes = rng.random() < 0.8
        made = draft.gang(place, inputs, outputs, temp, donate=donate, takes=takes, irregular=irregular)
        draft.keep(*(slot for slot in made if rng.random() < 0.2))
    return draft.plan()
