"""Collects a controller's decisions in names that are the same in every run of a program: clients, runs, steps, slots.

    controller's commands, turn by turn --Collector.saw--> Seen

The same code reads a simulated controller's commands as they are made, and a real controller's as they are replayed
from its event log. Ids (of runs, buffers, the global sequence) depend on the order of arrival, so none is kept. Gets
are left out, since simulated clients read results without them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args

import msgspec

from core.compile import BLANK_SLOT
from core.controller import Controller
from core.model import Gang, Plan, Spans, device_spans, ranges
from core.protocol import effects as e
from core.protocol import messages as m
from core.record import OrderHash, token

NOTES = (m.ClientMessages, *get_args(m.Note))


class Decision(NamedTuple):
    """A gang that entered an island's order."""

    client: str
    program: str
    run: int  # the client's own number for it
    step: int
    node: str
    devices: Spans

    def __str__(self) -> str:
        return f"client {self.client!r}, run {self.run} of {self.program!r}, step {self.step} {self.node!r}"


class RunKey(NamedTuple):
    client: str
    run: int

    def __str__(self) -> str:
        return f"run {self.run} of client {self.client!r}"


class SlotLife(NamedTuple):
    """When a buffer of a run is made and freed: see `core.model.plan.Slot`."""

    maker: int
    takes: int
    last: int
    keep: bool
    senders: tuple[int, ...]
    nbytes: int

    def __str__(self) -> str:
        dies = "kept for its holders" if self.keep else f"last read by step {self.last}"
        dies = f"sent by steps {', '.join(map(str, self.senders))}" if self.senders else dies
        takes = f", in the memory of slot {self.takes}" if self.takes >= 0 else ""
        return f"{self.nbytes} bytes, made by step {self.maker}{takes}, {dies}"


class RunSeen:
    """All commands to hosts for one run."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.entered: list[tuple[int, str, int]] = []  # (island, what, step), in the order of the controller
        self.sequences: dict[Spans, list[int]] = {}  # steps that are gangs, by the devices they run on
        self.slots: dict[int, SlotLife] = {}
        self.freed: Counter[str] = Counter()  # by a command to the hosts; other buffers are freed by the order of gangs
        self.outcomes: list[str] = []

    @property
    def steps(self) -> Counter[tuple[int, str, int]]:
        return Counter(self.entered)


class ClusterSeen:
    """All decisions of a controller, from start to end."""

    def __init__(self, islands: Sequence[str]) -> None:
        self.islands = list(islands)
        self.orders: list[list[Decision]] = [[] for _ in islands]
        self.hash = OrderHash()
        self.runs: dict[RunKey, RunSeen] = {}
        self.puts: Counter[str] = Counter()  # clients' buffers, and what became of them
        self.left: dict[str, int] = {}
        self.told: list[str] = []  # the controller's messages to operators


class Collector:
    """Takes each turn's commands, right after the turn."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.seen = ClusterSeen([island.name for island in controller.cluster.islands])
        self._plans: dict[tuple[int, int], Plan] = {}  # (island, its number)
        self._keys: dict[int, RunKey] = {}
        self._headers: dict[int, m.RunHeader] = {}
        self._buffers: dict[int, tuple[RunKey | None, str]] = {}  # by id: whose, and its name
        self._puts: Counter[str] = Counter()
        self._peers: dict[int, str] = {}
        self._entered: set[int] = set()  # a new epoch repeats steps; these are known

    def saw(self, commands: Sequence[Any]) -> None:
        for island in self._controller.cluster.islands[len(self.seen.islands) :]:  # the cluster has grown
            self.seen.islands.append(island.name)
            self.seen.orders.append([])
        for command in commands:
            if isinstance(command, e.Send):
                if isinstance(command.message, m.Ordered):
                    self._ordered(command.message)
                elif isinstance(command.message, NOTES):
                    self._noted(command.peers, command.message)
            elif isinstance(command, e.LogLine | e.PolicyReplaced):
                self.seen.told.append(command.text)

    def end(self) -> ClusterSeen:
        """Count what is left over, and return all that was seen."""
        left = self._controller.left()
        self.seen.left = {
            "buffers": left["buffers"],
            "references": self._controller.snapshot().references,
            "runs": left["runs"],
            "steps under way": left["operations"],
            "clients": left["clients"],
        }
        wrong = [what for what, kept, counted in self._controller.audit() if kept != counted]
        self.seen.left |= {f"{what}, miscounted": 1 for what in wrong}
        return self.seen

    # --- commands to hosts ------------------------------------------------------------------------------------

    def _ordered(self, message: m.Ordered) -> None:
        for plan in message.plans:
            self._plans[message.island, plan.id] = plan
        for header in message.runs:
            self._run(message.island, header)
        for step in message.steps:
            match step:
                case m.GangStep():
                    if self._new(step.seq):
                        self._gang(message.island, step)
                case m.SendStep() | m.RecvStep():
                    if self._new(step.seq):
                        self._half(message.island, step)
                case m.FreeStep(buffers):
                    self._free(ranges.each(buffers))
                case m.SpillStep(seq, buffer) | m.RestoreStep(seq, buffer):
                    if self._new(seq):
                        self._copied("spill" if isinstance(step, m.SpillStep) else "restore", buffer)
                case _:
                    pass

    def _new(self, seq: int) -> bool:
        if seq in self._entered:
            return False
        self._entered.add(seq)
        return True

    def _run(self, island: int, header: m.RunHeader) -> None:
        if header.run not in self._keys:
            self._keys[header.run] = RunKey(*(self._controller.call_of(header.run) or ("", header.run)))
        key = self._keys[header.run]
        plan = self._plans[island, header.plan]
        seen = self.seen.runs.setdefault(key, RunSeen(plan.program))
        args = ranges.each(header.args)
        self._headers[header.run] = header
        for number, slot in enumerate(plan.slots):
            if slot == BLANK_SLOT:
                continue
            seen.slots[number] = SlotLife(slot.maker, slot.takes, slot.last, slot.keep, slot.senders, slot.nbytes)
            if slot.arg < 0 or args[slot.arg] < 0 or slot.arg in dict(header.literals):
                self._buffers[header.base + number] = key, f"slot {number}"

    def _gang(self, island: int, step: m.GangStep) -> None:
        key, header = self._keys[step.run], self._headers[step.run]
        plan = self._plans[island, header.plan]
        gang = plan.steps[step.step]
        assert isinstance(gang, Gang)
        devices = device_spans(gang.place)
        self.seen.orders[island].append(Decision(key.client, plan.program, key.run, step.step, gang.name, devices))
        self.seen.hash.entered(island, key.run, token(key.client, plan.program, gang.name))
        what = "gang, donating" if gang.donated and step.donate else "gang"
        self.seen.runs[key].entered.append((island, what, step.step))
        self.seen.runs[key].sequences.setdefault(devices, []).append(step.step)

    def _half(self, island: int, step: m.SendStep | m.RecvStep) -> None:
        """Record one end of a transfer. Gets are not counted, since simulated clients need none."""
        if not step.client:
            what = "send" if isinstance(step, m.SendStep) else "receive"
            self.seen.runs[self._keys[step.run]].entered.append((island, what, step.step))
        elif isinstance(step, m.RecvStep):
            self._put(step)

    def _put(self, step: m.RecvStep) -> None:
        client = self._client(step.client)
        self._puts[client] += 1
        name = f"put {self._puts[client]} of client {client!r}"
        self._buffers[step.step] = None, name
        self.seen.puts[f"{name}: made"] += 1

    def _client(self, number: int) -> str:
        return self._controller.client_name(number) or str(number)

    def _free(self, buffers: Iterable[int]) -> None:
        for buffer in buffers:
            key, name = self._buffers.get(buffer, (None, f"buffer {buffer}"))
            if key is None:
                self.seen.puts[f"{name}: freed"] += 1
            else:
                self.seen.runs[key].freed[name] += 1

    def _copied(self, what: str, buffer: int) -> None:
        key, name = self._buffers.get(buffer, (None, f"buffer {buffer}"))
        self.seen.puts[f"{name}{f' of {key}' if key else ''}: {what}"] += 1

    # --- notes to clients -------------------------------------------------------------------------------------

    def _noted(self, peers: tuple[int, ...], message: msgspec.Struct) -> None:
        for note in message.notes if isinstance(message, m.ClientMessages) else (message,):
            for peer in peers:
                client = self._controller.client_at(peer)
                if client is not None:
                    self._peers[peer] = client[1]
                if isinstance(note, m.Ended):
                    key = RunKey(self._peers.get(peer, str(peer)), note.run)
                    seen = self.seen.runs.setdefault(key, RunSeen(""))
                    seen.outcomes.append(f"failed: {note.blame.code}" if note.blame else "ended well")


class Watched:
    """Wraps a controller and collects its commands as they are made."""

    def __init__(self, controller: Controller) -> None:
        self._controller, self.collector = controller, Collector(controller)

    def handle(self, event: e.Event, now: int) -> list[e.Command]:
        commands = self._controller.handle(event, now)
        self.collector.saw(commands)
        return commands

    def next_wakeup(self) -> int | None:
        return self._controller.next_wakeup()
