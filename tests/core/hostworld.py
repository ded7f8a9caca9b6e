"""A world around one executor: a stream, and devices, transfers and a compiler with random delays.

`Stream` draws what the controller says to host 0 of a small cluster. A `Life` plays it with some delays and records
what the executor did, and when. It is a brute-force event loop that knows nothing of causes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from math import lcm
from random import Random
from typing import Any

import msgspec

from core import protocol as p
from core.compile import draft
from core.host import Executor, code_cause
from core.model import spans
from core.model.place import Place, line
from core.model.plan import Code, Gang, Layout, Move, Plan, Slot
from core.model.program import Sharding
from core.model.spans import Spans

PER_HOST = 2
HOSTS = spans.normal([(0, 2)])  # of island 0; hosts 2 and 3 are island 1
HERE = (line(0, 0, 4), line(0, 0, 2), line(0, 0, 1), line(0, 1, 1))  # places on island 0 that host 0 has a part of
THERE = line(1, 4, 4)
SPLIT, SAME = Sharding(((0,),)), Sharding()


class Cluster:
    def host_of(self, device: int) -> int:
        return device // PER_HOST

    def devices_of(self, host: int) -> range:
        return range(host * PER_HOST, (host + 1) * PER_HOST)


def layout(place: Place, rows: int = 8, sharding: Sharding = SPLIT) -> Layout:
    return Layout((rows,), "float32", place, (place.size,), sharding)


def gang(name: str, place: Place, inputs: tuple[int, ...], outputs: tuple[int, ...], **more: Any) -> Gang:
    defaults: dict[str, Any] = {
        "computation": 0, "donated": (), "cost": 10, "temp": 0, "collective": True, "irregular": False,
        "node": 0,
    }  # fmt: skip
    return Gang(name=name, place=place, inputs=inputs, outputs=outputs, **(defaults | more))


def plan(number: int, layouts: list[Layout], steps: Sequence[Gang | Move], **more: Any) -> Plan:
    """Fill in what lowering would: makers, last readers, senders. args: slot -> argument; keep: slots."""
    args, keep, steps = more.get("args", {}), more.get("keep", ()), list(steps)
    slots = []
    for slot, where in enumerate(layouts):
        makers = [at for at, step in enumerate(steps) if slot in draft.makes(step)]
        readers = [at for at, step in enumerate(steps) if slot in draft.reads(step)]
        senders = tuple(i for i in readers if isinstance(steps[i], Move))
        maker = makers[0] if makers else -1
        last = -1 if slot in keep or senders else max(readers, default=maker)
        slots.append(Slot(where, 16, maker, -1, args.get(slot, -1), slot in keep, last, senders))
    for index, step in enumerate(steps):
        if isinstance(step, Gang) and more.get("donate"):
            given = tuple(slot for slot in step.inputs if slots[slot].last == index and slots[slot].arg < 0)
            steps[index] = msgspec.structs.replace(step, donated=given)
    codes = (Code("k", "k", next((i for i, s in enumerate(steps) if isinstance(s, Gang)), -1)),)
    return Plan(number, "prog", codes, tuple(slots), tuple(steps), (), ())


def on_island_0(place: Place) -> bool:
    """The devices of a place that are on island 0."""
    return place.island == 0


def hosts_of(place: Place) -> Spans:
    return spans.of(device // PER_HOST for device in place.devices())


class Stream:
    """What the controller says: `messages`, and what the world will answer (`fates`, by transfer or seq).

    `hosts`: of island 0. `near`, `far`: places on it, and on island 1. `travel`: the part of the possible transfers
    between hosts that is made. `replicated`: how many buffers are the same on all devices.
    """

    def __init__(
        self, random: Random, runs: int = 8, *, hosts: Spans = HOSTS, near: Sequence[Place] = HERE,
        far: Place = THERE, travel: float = 1.0, replicated: float = 0.0,
    ) -> None:  # fmt: skip
        self.random = random
        self.hosts, self.near, self.far = hosts, near, far
        self.travel, self.replicated = travel, replicated
        self.messages: list[p.Ordered] = []
        self.fates: dict[tuple[str, int], Any] = {}
        self.seq = 0
        self.owed: dict[int, p.Step] = {}  # seq -> the step without which it cannot end
        self.paid: list[int] = []  # seqs whose step is in this turn
        self.held: list[int] = []  # buffers of clients that are here
        self.spilled: list[int] = []
        self.layouts: dict[int, Layout] = {}
        self.busy: list[int] = []  # arguments of the run that is being drawn
        self.plans: list[Plan] = []
        self.rows = lcm(8, *(place.size for place in (*near, far)))
        self._turn: tuple[list[Plan], list[p.RunHeader], list[p.Step]] = ([], [], [])
        self._draw(runs)

    # --- drawing ------------------------------------------------------------------------------------------

    def _draw(self, runs: int) -> None:
        random = self.random
        for run in range(runs):
            if not self.plans or random.random() < 0.5:
                self._new_plan()
            self._client_steps()
            self._run(run, random.choice(self.plans))
        self._pay(all_of_it=True)
        if self.held:
            self.say(p.FreeStep(tuple(self.held)))
        self.say(p.ForgetStep(tuple(range(runs)), tuple(each.id for each in self.plans)))
        self.flush()
        self.flush(final=True)

    def say(self, step: p.Step) -> None:
        self._turn[2].append(step)
        if self.random.random() < 0.4:
            self.flush()

    def flush(self, final: bool = False) -> None:
        plans, runs, steps = self._turn
        self._turn = ([], [], [])
        high = min([*self.owed, *self.paid, self.seq + 1])
        self.paid = []
        before = self.messages[-1].settled if self.messages else 0
        kinds = p.GangStep | p.SendStep | p.RecvStep | p.SpillStep | p.RestoreStep
        high = min([high, *(step.seq for step in steps if isinstance(step, kinds))])
        settled = max(before, self.random.choice((before, (before + high) // 2, high)))
        settled = self.seq + 1 if final else settled
        number = len(self.messages) + 1
        self.messages.append(p.Ordered(0, 0, 0, number, self.hosts, settled, tuple(plans), tuple(runs), tuple(steps)))

    def next(self) -> int:
        self.seq += 1
        return self.seq

    def _drawn(self, chance: float) -> bool:
        return chance > 0 and (chance >= 1 or self.random.random() < chance)

    def _layout(self, place: Place) -> Layout:
        return layout(place, self.rows, SAME if self._drawn(self.replicated) else SPLIT)

    def _new_plan(self) -> None:
        random, layouts, steps = self.random, [], []  # type: Random, list[Layout], list[Gang | Move]
        args: dict[int, int] = {}
        for arg in range(random.randrange(3)):
            args[len(layouts)] = arg
            layouts.append(self._layout(random.choice(self.near)))
        for _ in range(random.randrange(1, 6)):
            place = random.choice(self.near)
            near = [slot for slot, where in enumerate(layouts) if where.place == place]
            mine = [slot for slot, where in enumerate(layouts) if on_island_0(where.place)]
            draw = random.random() if self._drawn(self.travel) else 1.0
            if draw < 0.15 and mine:
                layouts.append(self._layout(self.far))
                steps.append(Move("out", (random.choice(mine),), (len(layouts) - 1,), random.random() < 0.3, 0))
            elif draw < 0.3:
                layouts += [self._layout(self.far), self._layout(place)]
                steps.append(Move("in", (len(layouts) - 2,), (len(layouts) - 1,), random.random() < 0.3, 0))
            elif draw < 0.4 and mine:
                first = random.choice(mine)
                along = [slot for slot in mine if layouts[slot].place == layouts[first].place]
                sources = (first, *random.sample(along, random.randrange(min(3, len(along)))))
                targets = tuple(range(len(layouts), len(layouts) + len(sources)))
                layouts += [self._layout(place) for _ in sources]
                steps.append(Move("across", sources, targets, False, 0))
            else:
                inputs = tuple(random.sample(near, min(len(near), random.randrange(3))))
                outputs = tuple(range(len(layouts), len(layouts) + random.randrange(1, 3)))
                layouts += [self._layout(place) for _ in outputs]
                steps.append(gang(f"g{len(steps)}", place, inputs, outputs))
        ours = [slot for slot, where in enumerate(layouts) if on_island_0(where.place) and slot not in args]
        keep = tuple(random.sample(ours, min(len(ours), random.randrange(3))))
        found = plan(len(self.plans) + 1, layouts, steps, args=args, keep=keep, donate=random.random() < 0.3)
        self.plans.append(found)
        self._turn[0].append(found)
        if random.random() < 0.7:
            self.say(p.CompileStep(found.id, (0,)))

    def _run(self, run: int, made: Plan) -> None:
        random, base = self.random, 1000 * (run + 1)
        args: dict[int, int] = {}
        literals = []
        for slot, facts in enumerate(made.slots):
            if facts.arg < 0:
                continue
            fitting = [b for b in self.held if self.layouts[b] == facts.layout and b not in self.spilled]
            if random.random() < 0.3 or not (fitting or self._drawn(self.travel)):
                args[facts.arg] = -1
                literals.append((facts.arg, b"x" * 32))
            elif fitting:
                args[facts.arg] = random.choice(fitting)
            else:
                args[facts.arg] = base + 500 + slot
                self._put(args[facts.arg], facts.layout)
        kept = tuple((slot, 7, base + slot) for slot, facts in enumerate(made.slots) if facts.keep)
        header = p.RunHeader(run, made.id, base, tuple(args[a] for a in sorted(args)), tuple(literals), kept)
        self._turn[1].append(header)
        self.busy = list(args.values())
        for index, step in enumerate(made.steps):
            self._step(run, index, step, made)
            self._pay()
            if random.random() < 0.2:
                self._client_steps()
        self.busy = []
        for slot, facts in enumerate(made.slots):
            if facts.keep:
                self.held.append(base + slot)
                self.layouts[base + slot] = facts.layout

    def _step(self, run: int, index: int, step: Gang | Move, made: Plan) -> None:
        random = self.random
        if isinstance(step, Gang):
            seq = self.next()
            self.fates["done", seq] = p.Blame("user", f"boom {seq}") if random.random() < 0.1 else None
            ack, donate = random.random() < 0.2, random.random() < 0.8
            self.say(p.GangStep(seq, run, index, hosts_of(step.place), ack, (), donate))
            if random.random() < 0.1:
                self.say(p.AskStep(random.randint(1, self.seq)))
            return
        transfer = self.next()
        source, target = made.slots[step.sources[0]].layout.place, made.slots[step.targets[0]].layout.place
        if on_island_0(source):
            self.say(p.SendStep(transfer, run, index, hosts_of(source), transfer))
            number = random.randrange(3)
            self.fates["count", transfer] = tuple((2 + k % 2, k, 4) for k in range(number))
        if on_island_0(target):
            seq = self.next()
            after = random.choice((-1, random.randint(0, seq)))
            late = self._fate_of(seq, transfer, step.sparse)
            self.say(p.RecvStep(seq, run, index, hosts_of(target), transfer, after))
            if late:
                self.say(p.PoisonStep(transfer, p.Blame("host-lost", "too late")))

    def _fate_of(self, seq: int, transfer: int, sparse: bool) -> bool:
        """Whether its contents arrive, and what must be said in that case. True: poison will be too late."""
        random = self.random
        fate = random.choice(("data", "data", "data", "spoilt", "dropped"))
        self.fates["recv", transfer] = fate
        if fate == "dropped":
            self.owed[seq] = p.PoisonStep(transfer, p.Blame("host-lost", f"poison {transfer}"))
        elif sparse and fate == "data":
            self.owed[seq] = p.ExpectStep(transfer, ((0, 3),) if random.random() < 0.5 else ())
        return fate == "data" and not sparse and random.random() < 0.2

    def _pay(self, all_of_it: bool = False) -> None:
        """Say some of what is still to be said."""
        for seq in list(self.owed):
            if all_of_it or self.random.random() < 0.3:
                self.paid.append(seq)
                self.say(self.owed.pop(seq))

    def _put(self, buffer: int, where: Layout) -> None:
        seq = self.next()
        self.say(p.RecvStep(seq, -1, buffer, hosts_of(where.place), seq, -1, 7, buffer, where))
        self.fates["recv", seq] = self.random.choice(("data", "spoilt"))
        self.held.append(buffer)
        self.layouts[buffer] = where

    def _client_steps(self) -> None:
        random = self.random
        idle = [buffer for buffer in self.held if buffer not in self.busy]
        if not idle:
            return
        buffer = random.choice(idle)
        where = hosts_of(self.layouts[buffer].place)
        draw = random.random()
        if buffer in self.spilled:
            self.say(p.RestoreStep(self.next(), buffer, where, random.choice((-1, random.randint(0, self.seq)))))
            self.fates["done", self.seq] = p.Blame("user", "no copy") if random.random() < 0.2 else None
            self.spilled.remove(buffer)
        elif draw < 0.3 and self._drawn(self.travel):
            seq = self.next()
            self.say(p.SendStep(seq, -1, buffer, where, seq, 7))
        elif draw < 0.6:
            self.say(p.FreeStep((buffer, 999_999)))
            self.held.remove(buffer)
        elif draw < 0.8:
            self.say(p.SpillStep(self.next(), buffer, where, random.random() < 0.5))
            self.fates["done", self.seq] = None
            self.spilled.append(buffer)


class Life:
    """What an executor did when it was given a stream once."""

    def __init__(self, stream: Stream, delays: Random, lane: str) -> None:
        self.stream, self.delays = stream, delays
        self.executor = Executor(0, Cluster(), lane=lane)
        self.effects: list[tuple[int, p.Effect]] = []
        self.times: dict[tuple[str, int], int] = {("seat", 0): 0, ("reformed", 0): 0}
        self.over: set[int] = set()
        self._queue: list[tuple[int, int, Any]] = []
        self._count = self.now = 0
        self._free = [0] * PER_HOST  # when each device will be free
        self._answered: set[tuple[str, int]] = set()
        self._next_message = 0
        self._message_due = 0
        self._play()

    def _play(self) -> None:
        seat = p.Seat(0, 0, 0, 0, -1, (), HOSTS, 0)
        assert [type(e) for e in self.executor.handle(seat, 0)] == [p.Reform]
        self.executor.handle(p.Reformed(0), 0)
        self._offer_message()
        while self._queue:
            self.now, _, event = heapq.heappop(self._queue)
            self._take(event)
        assert self._next_message == len(self.stream.messages), "the stream is stuck: something was never answered"

    def _later(self, event: Any, at: int | None = None) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now + self.delays.choice((0, 1, 5, 40)) if at is None else at,
                                     self._count, event))  # fmt: skip

    def _offer_message(self) -> None:
        """The controller writes a message only when all that it calls settled has been reported."""
        if self._next_message < len(self.stream.messages):
            message = self.stream.messages[self._next_message]
            known = {seq for m in self.stream.messages[: self._next_message] for seq in ours(m)}
            if all(seq in self.over for seq in known if seq < message.settled):
                self._next_message += 1
                self._message_due = max(self.now, self._message_due) + self.delays.choice((0, 1, 3, 30))
                self._later(message, self._message_due)

    def _take(self, event: Any) -> None:
        cause = cause_of(event)
        if cause is not None:
            assert cause not in self.times
            self.times[cause] = self.now
        for effect in self.executor.handle(event, self.delays.randrange(1000)):
            self.effects.append((self.now, effect))
            self._act(effect)
        self._offer_message()

    def _once(self, kind: str, name: int, event: Any, at: int | None = None) -> None:
        if (kind, name) not in self._answered:
            self._answered.add((kind, name))
            self._later(event, at)

    def _act(self, effect: p.Command) -> None:
        fates = self.stream.fates
        match effect:
            case p.Launch():
                self._launch(effect)
            case p.SpillBuffer(seq=seq) | p.RestoreBuffer(seq=seq):
                self._later(p.Copied(seq, fates["done", seq]))
            case p.CompileCode(plan=number, code=code):
                self._later(p.CodeReady(number, code))
            case p.CountRows(transfer=transfer):
                self._later(p.RowsCounted(transfer, fates["count", transfer]))
            case p.OpenSend(transfer=transfer):
                self.times["sending", transfer] = self.now
                self._once("sent", transfer, p.Sent(transfer))
            case p.OpenRecv() | p.ExpectRecv() | p.DropTransfer():
                self._receive(effect)
            case p.ToController(report=p.Done(seq=seq)):
                self.over.add(seq)
            case _:
                pass

    def _launch(self, effect: p.Launch) -> None:
        self.times["launch", effect.seq] = self.now
        devices = self._devices(effect.run, effect.step)
        end = max([self.now, *(self._free[d] for d in devices)]) + self.delays.choice((1, 4, 20))
        for device in devices:
            self._free[device] = end
        self._later(p.Finished(effect.seq, self.stream.fates["done", effect.seq]), end)

    def _receive(self, effect: p.OpenRecv | p.ExpectRecv | p.DropTransfer) -> None:
        """Contents arrive once they are asked for, in a sparse exchange once their number is known. Poison of a
        transfer whose contents arrive is too late."""
        transfer = effect.transfer
        fate = self.stream.fates.get(("recv", transfer))
        if isinstance(effect, p.DropTransfer):
            if fate == "dropped":
                self._once("recv", transfer, p.Received(transfer, effect.blame))
        elif fate == "spoilt":
            self._once("recv", transfer, p.Received(transfer, p.Blame("user", f"spoilt {transfer}")))
        elif fate == "data" and not (isinstance(effect, p.OpenRecv) and effect.sparse):
            self._once("recv", transfer, p.Received(transfer))

    def _devices(self, run: int, step: int) -> list[int]:
        header = next(h for m in self.stream.messages for h in m.runs if h.run == run)
        made = next(each for each in self.stream.plans if each.id == header.plan)
        found = made.steps[step]
        assert isinstance(found, Gang)
        return [d for d in found.place.devices() if d < PER_HOST]


def cause_of(event: Any) -> tuple[str, int] | None:
    match event:
        case p.Ordered(number=number):
            return ("order", number)
        case p.Finished(seq=seq) | p.Copied(seq=seq):
            return ("done", seq)
        case p.Received(transfer=transfer):
            return ("recv", transfer)
        case p.Sent(transfer=transfer):
            return ("sent", transfer)
        case p.RowsCounted(transfer=transfer):
            return ("count", transfer)
        case p.CodeReady(plan=number, code=code):
            return code_cause(number, code)
        case _:
            return None


def ours(message: p.Ordered) -> list[int]:
    """Seqs of this message's steps that host 0 takes part in."""
    kinds = p.GangStep | p.SendStep | p.RecvStep | p.SpillStep | p.RestoreStep
    return [s.seq for s in message.steps if isinstance(s, kinds) and spans.contains(s.hosts, 0)]
