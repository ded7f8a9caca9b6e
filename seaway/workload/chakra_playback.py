"""Plays the steps of a Chakra execution trace in a session, as programs of synthetic computations and transfers.

A step is a gang on the slice of its ranks, or on a part of that. Each takes a token from the one before on its slice,
and from what else it waits for, and makes one. A send is a gang that takes no time and makes what is sent; `sw.put`
moves that; a receive is a gang that takes no time and waits for it, right before the first step that waits for that.

Neighbours: `chakra_steps` says what there is to play. The functions that matter: `play`, `ChakraPlayer._gang`,
`_call`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from core.model import SliceSpec
from sim.hardware import Chip, Collective, Kernel, chips

from ..api import program, put, synthetic
from ..chakra_files import COMPUTE, METADATA, RECV, SEND
from ..costs.hlo import nested
from ..sessions import Session, ambient
from ..specs import Slice, avals
from ..specs import slice as slice_of
from ..units import Nanoseconds
from .chakra_ranks import ChakraTrace
from .chakra_steps import PERMUTE, ChakraNode, Ranks

TOKEN = avals.aval((), "float32")
NO_TIME = (Collective("permute", 0, ((1, 1),)),)  # each device with itself
TOGETHER = 1_000  # steps of one program
SECOND = 1e9


class PlayedChakra(NamedTuple):
    """`makespan`: from the first gang's start to the last one's end. The session's trace has the rest."""

    makespan: Nanoseconds
    ranks: int
    gangs: int
    transfers: int


def play(trace: ChakraTrace, chip: str, session: Session | None) -> PlayedChakra:
    where = session or ambient.session("chakra.play()")
    player = ChakraPlayer(trace, chips.chip(chip) if chip else None, where)
    played: PlayedChakra = where.task_of(player.caller, player.play).result()
    return played


class ChakraPlayer:
    def __init__(self, trace: ChakraTrace, chip: Chip | None, session: Session) -> None:
        most = max(island.devices for island in session.driver.trace().machines.islands)
        self._name, self._steps, self._ranks = trace.name, trace.steps(most), len(trace.ranks)
        self._chip, self._session = chip, session
        self._sim: Any = getattr(session.driver, "simulation", None)
        self.caller = session.client(trace.name)
        slices = [(home, slice_of(len(home))) for home in trace.slices(most)]
        self._homes = {rank: each for each in slices for rank in each[0]}
        self._parts: dict[Ranks, Slice] = {}
        self._held: dict[Any, Any] = {}  # tokens by slice, and what arrives, by the step and the ranks that receive it
        self._arriving: dict[int, list[Ranks]] = {}  # by the step that receives
        self._slices: dict[int, list[Slice]] = {}  # on which a step's gangs are
        self._beside: set[int] = set()  # steps that were done beside a collective
        self._gangs = self._transfers = 0

    def play(self) -> PlayedChakra:
        for step in self._steps:
            self._part(step.ranks)
        numbers, runs = range(len(self._steps) + 1), []
        for first in numbers[::TOGETHER]:
            made = self._program(numbers[first : first + TOGETHER])
            runs += [each.run for each in made if each.run is not None][:1]
        calls = {self.caller.known_as(run.wait().number) for run in runs}
        for home in (*self._parts.values(), *dict.fromkeys(whole for _, whole in self._homes.values())):
            self.caller.forget_slice(home)
        return PlayedChakra(self._makespan(calls), self._ranks, self._gangs, self._transfers)

    def _program(self, numbers: Sequence[int]) -> list[Any]:
        """One run of these steps. It takes what earlier ones have left, and returns what is left of it."""
        keys = list(self._held)

        def steps(before: list[Any]) -> list[Any]:
            self._held = dict(zip(keys, before, strict=True))
            for number in numbers:
                self._play(number)
            return list(self._held.values())

        after: list[Any] = program(steps, name=self._name)(list(self._held.values()))
        self._held = dict(zip(self._held, after, strict=True))
        return after

    # --- steps ----------------------------------------------------------------------------------------------

    def _play(self, number: int) -> None:
        if number == len(self._steps):  # what no other step waits for
            for each in list(self._arriving):
                self._receive(each)
            return
        step = self._steps[number]
        for each in sorted(step.after):
            self._receive(each)
        if step.kind == METADATA:
            self._slices[number] = list(dict.fromkeys(home for each in step.after for home in self._slices[each]))
        elif step.kind == RECV:
            self._slices[number] = [self._part(ranks) for ranks in self._arriving.get(number, ())]
        elif number in self._beside:
            return
        elif step.kind == SEND:
            self._send(number)
        else:
            more = [] if step.kind == COMPUTE else self._right_behind(number)
            self._gang(number, more)
            self._slices |= dict.fromkeys(more, self._slices[number])
            self._beside.update(more)

    def _right_behind(self, number: int) -> list[int]:
        """Computing steps that come right behind a collective on its ranks, and do not wait for it."""
        found, behind, ranks = list[int](), {number}, self._steps[number].ranks
        for other in range(number + 1, len(self._steps)):
            step = self._steps[other]
            if set(ranks).isdisjoint(step.ranks):
                continue
            waits = not behind.isdisjoint(step.after)
            if step.kind == METADATA:
                behind |= {other} if waits else set()
            elif (
                waits or step.kind != COMPUTE or step.ranks != ranks or not self._arriving.keys().isdisjoint(step.after)
            ):
                break
            else:
                found.append(other)
        return found

    def _gang(self, number: int, beside: Sequence[int]) -> None:
        step = self._steps[number]
        own = self._computing([step.node] if step.kind == COMPUTE else [self._steps[each].node for each in beside])
        if step.kind == COMPUTE:
            self._call(number, step.ranks, own, waits=False)
            return
        at = {rank: place for place, rank in enumerate(step.ranks)}
        shape, alike = nested([[at[rank] for rank in group] for group in step.groups], len(at))
        for ranks, groups in [(step.ranks, shape)] if alike else [(group, ()) for group in step.groups]:
            kind = "permute" if step.kind == PERMUTE else step.node.collective
            assert kind is not None
            if self._sim is None:
                kernel = Kernel("", max(own.duration, step.node.takes, 1))
            else:
                one = Collective(kind, step.node.nbytes, groups, hidden=own.duration)
                kernel = Kernel("", own.duration, (one,), durations=own.durations)
            self._call(number, ranks, kernel)

    def _computing(self, nodes: Sequence[ChakraNode]) -> Kernel:
        """What these nodes take, one after the other; by kind of device, if one of them does not say it."""
        if all(node.takes >= 0 for node in nodes):
            return Kernel("", sum(node.takes for node in nodes))
        if self._chip is not None:
            kinds = {"": self._chip}
        elif self._sim is not None:
            kinds = {island.kind: self._sim.setup.chips[island.index] for island in self._sim.cluster.islands}
        else:
            lacks = next(node for node in nodes if node.takes < 0)
            raise ValueError(
                f"{lacks.label} has no duration: say on which chip it is, as chakra(...).play(chip='h100')"
            )
        times = {kind: sum(_takes(node, chip) for node in nodes) for kind, chip in kinds.items()}
        return Kernel("", max(times.values()), durations=tuple(times.items()) if len(times) > 1 else ())

    def _send(self, number: int) -> None:
        step = self._steps[number]
        for receiver, pairs in step.to:
            sources, targets = tuple(one for one, _ in pairs), tuple(other for _, other in pairs)
            content = avals.aval((max(1, step.node.nbytes) * len(pairs),), "uint8")
            sent = self._call(number, sources, Kernel("", 0, NO_TIME), content=content)
            self._held[receiver, targets] = put(sent, sharding=self._part(targets).sharding("x"))
            self._arriving.setdefault(receiver, []).append(targets)
            self._transfers += 1

    def _receive(self, number: int) -> None:
        for targets in self._arriving.pop(number, ()):
            self._call(number, targets, Kernel("", 0, NO_TIME), arrived=self._held.pop((number, targets)))

    # --- gangs ----------------------------------------------------------------------------------------------

    def _call(
        self, number: int, ranks: Ranks, kernel: Kernel, *, waits: bool = True, arrived: Any = None, content: Any = None
    ) -> Any:
        """Adds a gang of a step. Returns the content that it makes, if any."""
        home, step = self._part(ranks), self._steps[number]
        before = [each for each in sorted(step.after) if arrived is None or self._steps[each].kind != SEND]
        others = dict.fromkeys(one for each in before for one in self._slices[each] if one is not home)
        tokens = [self._held[each] for each in (home, *others) if each in self._held] or [np.float32(0)]
        split = home.sharding("x") if arrived is not None or content is not None else None
        made = synthetic(
            step.node.name or self._name, devices=home, kernel=kernel, collective=waits and len(ranks) > 1,
            in_shardings=(*[None] * len(tokens), *([split] if arrived is not None else [])),
            out=(TOKEN, *([content] if content is not None else [])),
            out_shardings=(None, *([split] if content is not None else [])),
        )(*tokens, *([arrived] if arrived is not None else []))  # fmt: skip
        self._held[home] = made[0]
        self._slices.setdefault(number, []).append(home)
        self._gangs += 1
        return made[-1]

    def _part(self, ranks: Ranks) -> Slice:
        """The slice of these ranks, in their order."""
        home, whole = self._homes[ranks[0]]
        if ranks == home:
            return whole
        if ranks not in self._parts:
            if whole not in self._held:  # it has devices before others are a part of them
                self._held[whole] = put(np.float32(0), devices=whole)
            picks = tuple(map(home.index, ranks))
            of = self.caller.name_of(whole)
            spec = SliceSpec(f"{of}[{len(self._parts)}]", len(ranks), of=of, picks=picks)
            self._parts[ranks] = Slice(spec, ("x",))
        return self._parts[ranks]

    def _makespan(self, calls: set[tuple[int, int]]) -> Nanoseconds:
        facts = self._session.driver.trace().facts()
        runs = zip(facts.runs["client"].tolist(), facts.runs["call"].tolist(), strict=True)
        rows = np.isin(facts.gangs["run"], [row for row, call in enumerate(runs) if call in calls]) & (facts.end >= 0)
        return Nanoseconds(facts.end[rows].max() - facts.start[rows].min() if rows.any() else 0)


def _takes(node: ChakraNode, chip: Chip) -> int:
    if node.takes >= 0:
        return node.takes
    operations, moved = node.work
    return round(max(operations / chip.peak_flops, moved / chip.hbm_bandwidth) * SECOND)
