"""A small world of runs that share devices, with two models of memory to check the ledger against.

Neither model counts as the ledger does. `order` keeps, for each device, what is there after the last gang that has
entered. `machine` keeps what is physically allocated: devices take gangs from their queues one at a time, receives
arrive when they may, and memory is freed when its last user ends. `World` is a controller in miniature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from core.compile.draft import makes, reads
from core.memory.buffers import Buffer, Buffers
from core.memory.footprint import Footprint, donates, effective
from core.memory.ledger import LacksMemory, Ledger, NeverFits
from core.memory.spill import HostBytes, Spill
from core.model.atoms import Atoms
from core.model.place import Place
from core.model.plan import Gang, Move, Plan
from core.protocol.messages import Blame

from .memory_machine import Arrival, Key, Launch, Machine
from .memory_plans import DEVICES

PER_HOST = 2
OVER = Blame("cancelled", "over")


@dataclass(eq=False)
class Run:
    ident: int
    plan: Plan
    args: list[int]  # buffer ids
    results: dict[int, int]  # slot -> buffer id
    held: set[int] = field(default_factory=set)  # argument slots that it still holds
    donated: frozenset[int] = frozenset()
    entered: dict[int, int] = field(default_factory=dict)  # step -> seq
    over: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    cancelled: bool = False

    def key(self, slot: int) -> Key:
        record = self.plan.slots[slot]
        if record.arg >= 0:
            return ("buffer", self.args[record.arg], 0)
        return ("buffer", self.results[slot], 0) if slot in self.results else ("slot", self.ident, slot)

    def readers(self, slot: int) -> list[int]:
        return [at for at, step in enumerate(self.plan.steps) if slot in reads(step)]


class World:
    """A controller in miniature. Runs are admitted in order of arrival; all else happens in any possible order."""

    def __init__(self, rng: Random, capacity: int, dram: int = 10**9, disk: int = 0) -> None:
        self.rng, self.capacity = rng, capacity
        self.atoms, self.buffers = Atoms(), Buffers()
        self.ledger = Ledger(self.atoms, lambda _: capacity)
        self.host, self.disk = HostBytes(hosts_of, lambda _: dram), HostBytes(hosts_of, lambda _: disk)
        self.spill = Spill(self.atoms, self.ledger, self.buffers, self.host, self.disk)
        self.machine = Machine(capacity)
        self.order: list[dict[Key, int]] = [{} for _ in range(DEVICES)]
        self.seq = self.ids = 0
        self.waiting: list[Run] = []
        self.running: list[Run] = []
        self.spilling: list[Buffer] = []
        self.refused: list[str] = []
        self.impossible = self.began = self.copied_out = self.copied_in = self.shrunk = 0

    # --- clients --------------------------------------------------------------------------------------------

    def next_id(self) -> int:
        self.ids += 1
        return self.ids

    def devices(self, key: int) -> list[int]:
        return [d for low, high in self.atoms.devices_of_key(key) for d in range(low, high)]

    def named(self) -> list[Buffer]:
        return [b for b in self.buffers if b.handle]

    def put(self, place: Place, nbytes: int) -> Buffer | None:
        key = self.atoms.intern(place)
        if self.ledger.admit(-1, None, [(key, nbytes)]) is not None:
            return None
        ident = self.next_id()
        buffer = self.buffers.create(ident, 1, ident, key, nbytes, promise=False)
        self.arrive(buffer, lambda: self.landed(ident))
        self.buffers.hold(ident)
        self.buffers.use(ident)
        return buffer

    def landed(self, ident: int) -> None:
        self.buffers.filled(ident)
        self.drop(self.buffers.let_go(ident, used=True))

    def arrive(self, buffer: Buffer, done: Callable[[], None]) -> None:
        key, devices = ("buffer", buffer.id, 0), self.devices(buffer.key)
        self.machine.landed.discard(key)
        self.place_in_order(key, buffer.nbytes, devices)
        after = self.ledger.after(buffer.key)
        self.machine.arrivals.append(Arrival({key: buffer.nbytes}, devices, after, set(), done))

    def submit(self, plan: Plan, share: float = 0.7) -> Run | None:
        args: list[int] = []
        for slot in plan.slots:
            if slot.arg >= 0:
                key = self.atoms.intern(slot.layout.place)
                pool = [b for b in self.named() if (b.key, b.nbytes) == (key, slot.nbytes) and not b.blame]
                known = self.rng.choice(pool) if pool and self.rng.random() < share else None
                buffer = known or self.put(slot.layout.place, slot.nbytes)
                if buffer is None:
                    return None
                args.append(buffer.id)
        run = Run(self.next_id(), plan, args, {})
        for slot_number, slot in enumerate(plan.slots):
            if slot.arg >= 0:
                self.buffers.hold(args[slot.arg])
                run.held.add(slot_number)
            if slot.keep:
                ident = run.results[slot_number] = self.next_id()
                maker, key = plan.steps[slot.maker], self.atoms.intern(slot.layout.place)
                exact = not (isinstance(maker, Gang) and maker.irregular)
                self.buffers.create(ident, 1, ident, key, slot.nbytes, exact=exact)
        for step in plan.steps:
            for given in step.donated if isinstance(step, Gang) else ():
                if plan.slots[given].arg >= 0 and self.buffers[args[plan.slots[given].arg]].handle:
                    self.buffers.release(1, args[plan.slots[given].arg])
        self.waiting.append(run)
        return run

    def release(self, buffer: Buffer) -> None:
        self.drop(self.buffers.release(1, buffer.name))

    def drop(self, gone: list[Buffer]) -> None:
        for buffer in gone:
            self.mirrored(buffer, self.spill.drop, buffer.last_seq)

    def mirrored(self, buffer: Buffer, act: Callable[[Buffer], None], after: int) -> None:
        """Call `do`, and if that freed device memory, free it in both models."""
        before = buffer.on_device
        act(buffer)
        if before and not buffer.on_device:
            self.free(("buffer", buffer.id, 0), self.devices(buffer.key), after)

    def free(self, key: Key, devices: list[int], after: int) -> None:
        for d in devices:
            del self.order[d][key]
        self.machine.frees.append((key, devices, after))
        self.machine.free_up()

    # --- admission ------------------------------------------------------------------------------------------

    def admit(self) -> bool:
        """Try to admit the first waiting run. Return whether it does not wait any more."""
        if not self.waiting:
            return False
        run = self.waiting[0]
        args = [self.buffers[ident] for ident in dict.fromkeys(run.args)]
        if any(b.blame for b in args):
            return self.refuse(run)
        if any(b.state == "spilling" for b in args):
            return False
        spilled = [b for b in args if b.state == "spilled"]
        sole = frozenset(
            slot.arg
            for slot in run.plan.slots
            if slot.arg >= 0 and self.buffers.is_sole(run.args[slot.arg], slot.nbytes)
        )
        run.donated = effective(run.plan, sole)
        answer = self.ledger.admit(
            run.ident, Footprint(run.plan, run.donated, self.atoms), [(b.key, b.nbytes) for b in spilled],
            [(b.key, b.nbytes) for b in args if b not in spilled],
        )  # fmt: skip
        if answer is None:
            self.begin(run, spilled)
            return True
        if isinstance(answer, NeverFits):
            self.impossible += 1
            return self.refuse(run)
        return self.make_room(run, answer)

    def make_room(self, run: Run, short: LacksMemory) -> bool:
        if short.enough:
            return False
        victims = self.spill.victims(short.missing, run.args)
        for victim in victims or ():
            self.spill.begin(victim)
            self.spilling.append(victim)
        if victims is not None or short.running or self.spill.busy(short.missing):
            return False
        self.refused.append(self.spill.holders_text(short.missing, lambda client: f"client {client}"))
        return self.refuse(run)

    def begin(self, run: Run, spilled: list[Buffer]) -> None:
        self.waiting.remove(run)
        self.running.append(run)
        self.began += 1
        self.copied_in += len(spilled)
        for buffer in spilled:
            self.spill.restore(buffer)
            self.arrive(buffer, partial(self.mirrored, buffer, self.spill.restored, -1))
        for slot in sorted(run.held):
            self.buffers.use(run.args[run.plan.slots[slot].arg])
        for arg in sorted(run.donated):
            self.buffers.consumed(run.args[arg])
        for slot, ident in run.results.items():
            if run.readers(slot):  # the run reads its own result, so it holds it
                self.buffers.hold(ident)
                self.buffers.use(ident)
                run.held.add(slot)
        for slot in sorted(run.held):
            if not run.readers(slot):
                self.let_go(run, slot)

    def let_go(self, run: Run, slot: int) -> None:
        run.held.discard(slot)
        self.drop(self.buffers.let_go(run.key(slot)[1], used=True))

    def refuse(self, run: Run) -> bool:
        self.waiting.remove(run)
        for slot in sorted(run.held):
            self.drop(self.buffers.let_go(run.key(slot)[1]))
        self.never_made(run)
        return True

    def never_made(self, run: Run) -> None:
        for slot, ident in run.results.items():
            if run.plan.slots[slot].maker not in run.entered:
                self.drop(self.buffers.never_made(ident, OVER))
                for other in self.running:
                    other.cancelled = other.cancelled or ident in other.args

    # --- steps ----------------------------------------------------------------------------------------------

    def enabled(self) -> list[tuple[Run, int]]:
        return [
            (run, step)
            for run in self.running
            if not run.cancelled
            for step, after in enumerate(run.plan.after)
            if step not in run.entered and all(before in run.entered for before in after)
            if all(self.buffers[ident].made for ident in self.read(run, step))
        ]

    def read(self, run: Run, step: int) -> list[int]:
        """Return the arguments that a step reads and that the run still holds."""
        slots = [slot for slot in run.held if run.plan.slots[slot].arg >= 0 and step in run.readers(slot)]
        return [run.key(slot)[1] for slot in slots]

    def enter(self, run: Run, step: int) -> None:
        self.seq += 1
        run.entered[step] = self.seq
        what = run.plan.steps[step]
        if isinstance(what, Gang):
            self.enter_gang(run, step, what)
        else:
            self.enter_move(run, step, what)
        for slot in (*reads(what), *makes(what)):
            ident = run.results.get(slot, -1)
            if run.plan.slots[slot].maker == step and ident >= 0:
                self.drop(self.buffers.ordered(ident, self.seq))
            elif slot in run.held:
                self.buffers.touch(run.key(slot)[1], self.seq)
        for slot in sorted(run.held):
            readers = run.readers(slot)
            if readers[-1] == step and not any(isinstance(run.plan.steps[r], Move) for r in readers):
                self.let_go(run, slot)

    def place_in_order(self, key: Key, nbytes: int, devices: list[int], scratch: int = 0) -> None:
        for d in devices:
            self.order[d][key] = nbytes
            assert sum(self.order[d].values()) + scratch <= self.capacity

    def enter_gang(self, run: Run, step: int, gang: Gang) -> None:
        plan, devices = run.plan, list(gang.place.devices())
        donate = donates(plan, step, run.donated)
        made: list[tuple[Key, int, int, list[int]]] = []
        for out in gang.outputs:
            slot = plan.slots[out]
            taken = min(slot.nbytes, plan.slots[slot.takes].nbytes) if donate and slot.takes >= 0 else 0
            places = list(slot.layout.place.devices())
            made.append((run.key(out), slot.nbytes, taken, places))
            self.place_in_order(run.key(out), slot.nbytes - taken, places)
        for d in devices:
            assert sum(self.order[d].values()) + gang.temp <= self.capacity
        dies = [slot for slot in gang.donated if donate]
        for number, slot in enumerate(plan.slots):
            readers = run.readers(number) or [slot.maker]
            private = slot.arg < 0 and not slot.keep and number not in dies
            if private and readers[-1] == step and all(isinstance(plan.steps[r], Gang) for r in readers):
                dies.append(number)
        for key, nbytes, _, places in made:
            for d in places:
                self.order[d][key] = nbytes
        for number in dies:
            for d in plan.slots[number].layout.place.devices():
                del self.order[d][run.key(number)]
        needs = [run.key(slot) for slot in gang.inputs]
        launch = Launch(
            self.seq, devices, made, [run.key(n) for n in dies], needs, gang.temp,
            partial(self.gang_over, run, step, gang, self.seq),
        )  # fmt: skip
        for d in devices:
            self.machine.queues[d].append(launch)
        self.ledger.entered(run.ident, step, self.seq)

    def enter_move(self, run: Run, step: int, move: Move) -> None:
        place = run.plan.slots[move.targets[0]].layout.place
        devices, nbytes = list(place.devices()), {run.key(slot): run.plan.slots[slot].nbytes for slot in move.targets}
        after = self.ledger.after(self.atoms.intern(place), sum(nbytes.values()))
        self.ledger.entered(run.ident, step, self.seq)
        for key, each in nbytes.items():
            self.place_in_order(key, each, devices)
        over = partial(self.move_over, run, step, move)
        self.machine.arrivals.append(Arrival(nbytes, devices, after, set(map(run.key, move.sources)), over))
        for ident in [run.results[slot] for slot in move.targets if slot in run.results]:
            self.buffers.use(self.buffers.hold(ident).id)  # the transfer holds what it fills

    def move_over(self, run: Run, step: int, move: Move) -> None:
        run.over.add(step)
        for ident in [run.results[slot] for slot in move.targets if slot in run.results]:
            self.buffers.filled(ident)
            self.drop(self.buffers.let_go(ident, used=True))
        for slot in dict.fromkeys(move.sources):
            self.reader_over(run, slot)

    def gang_over(self, run: Run, step: int, gang: Gang, seq: int) -> None:
        run.over.add(step)
        self.ledger.gang_finished(seq)
        for out in gang.outputs:
            ident = run.results.get(out, -1)
            if gang.irregular and run in self.running:
                self.shrink(run, out)
            if ident in self.buffers:
                self.buffers.filled(ident)
        for slot in dict.fromkeys(gang.inputs):
            self.reader_over(run, slot)

    def shrink(self, run: Run, slot: int) -> None:
        record = run.plan.slots[slot]
        heir = any(other.takes == slot for other in run.plan.slots)
        held = slot not in run.results or run.results[slot] in self.buffers
        nbytes = self.rng.randint(0, record.nbytes)
        if not heir and held:
            self.shrunk += 1
            self.ledger.shrunk(run.ident, slot, nbytes)
            if slot in run.results:
                self.buffers.shrink(run.results[slot], nbytes)
            for d in record.layout.place.devices():
                if run.key(slot) in self.order[d]:
                    self.order[d][run.key(slot)] = nbytes
                    self.machine.there[d][run.key(slot)] = nbytes

    def reader_over(self, run: Run, slot: int) -> None:
        """Free a slot that moves read, when all reads have ended."""
        readers, record = run.readers(slot), run.plan.slots[slot]
        sent = any(isinstance(run.plan.steps[r], Move) for r in readers)
        if not sent or not run.over.issuperset(readers):
            return
        if slot in run.held:
            self.let_go(run, slot)
        elif record.arg < 0 and not record.keep and slot not in run.gone:
            run.gone.add(slot)
            self.ledger.slot_freed(run.ident, slot)
            self.free(run.key(slot), list(record.layout.place.devices()), -1)

    # --- ends -----------------------------------------------------------------------------------------------

    def ended(self) -> list[Run]:
        return [
            run
            for run in self.running
            if run.over.issuperset(run.entered) and (run.cancelled or len(run.entered) == len(run.plan.steps))
        ]

    def end(self, run: Run) -> None:
        self.running.remove(run)
        for slot, key, nbytes in self.ledger.end(run.ident):
            if run.plan.slots[slot].arg >= 0:
                self.buffers.returned(run.key(slot)[1])
                continue
            self.ledger.free(key, nbytes)
            self.free(run.key(slot), self.devices(key), -1)
        for slot in sorted(run.held):
            self.let_go(run, slot)
        self.never_made(run)

    def copies(self) -> list[Callable[[], None]]:
        """Return the spills that may happen now, behind all gangs that touch the buffer."""
        machine = self.machine
        return [
            partial(self.copy_out, buffer)
            for buffer in self.spilling
            if all(machine.clear_of(d, buffer.last_seq) for d in self.devices(buffer.key))
        ]

    def copy_out(self, buffer: Buffer) -> None:
        self.spilling.remove(buffer)
        self.copied_out += 1
        self.mirrored(buffer, self.spill.spilled, -1)

    def go_on(self) -> list[Callable[[], None]]:
        """Return all events that may happen without a new call."""
        found = [*self.machine.possible(), *self.copies()]
        found += [partial(self.enter, run, step) for run, step in self.enabled()]
        found += [partial(self.end, run) for run in self.ended()]
        return found

    def check(self) -> None:
        """Check that the ledger's levels are those of the devices, and within their capacity."""
        for devices, resident, committed, _ in self.ledger.counters():
            assert committed <= self.capacity
            for low, high in devices:
                for d in range(low, high):
                    assert sum(self.order[d].values()) == resident, f"device {d}"

    def drain(self) -> None:
        """Let everything end, without new calls."""
        while True:
            if self.admit():
                continue
            possible = self.go_on()
            if not possible:
                break
            self.rng.choice(possible)()
            self.check()
        assert not self.waiting
        assert not self.running
        assert not any(self.machine.queues)
        assert not self.machine.arrivals

    def leave(self) -> None:
        """Let the client end, and check that nothing is left."""
        self.drop(self.buffers.client_gone(1))
        while possible := self.go_on():
            self.rng.choice(possible)()
        assert not len(self.buffers)
        assert all(resident == committed == 0 for _, resident, committed, _ in self.ledger.counters())
        assert all(used == 0 for _, used in self.host.counters())
        assert not any(self.machine.there)
        assert not any(self.machine.scratch)


def hosts_of(devices: tuple[tuple[int, int], ...]) -> list[tuple[tuple[tuple[int, int], ...], int]]:
    counts: dict[int, int] = {}
    for low, high in devices:
        for d in range(low, high):
            counts[d // PER_HOST] = counts.get(d // PER_HOST, 0) + 1
    return [(((host, host + 1),), each) for host, each in counts.items()]
