"""Works out what hosts must do to their devices by the controller's commands, and reads what they really did.

    event log --replayed--> Commanded: gangs of each device in sequence, buffers of each host, bytes of each transfer
    device logs ----------> HostActions: what the device layer was told to do, and which chunks were sent

The replayed controller receives the real one's events, so runs with any policy, any number of clients and any failure
can be compared. Effects are compared where the driver meets devices and network, so a driver's mistakes show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from backend.server import eventlogs
from core.compile import BLANK_SLOT
from core.controller import Controller
from core.model import Cluster, Gang, Layout, Move, Spans, device_spans, ranges, sends_by_host, spans
from core.protocol import effects as e
from core.protocol import messages as m
from core.record import Log, replayed
from core.schedule.policy import Policy
from core.transfer import hosts_of, to_client
from seaway.tools.parity.collect import ClusterSeen, Collector

from . import device_log

EXCUSED = ("host-lost", "peer", "cancelled", "client-lost", "user", "restart", "lost", "unsupported")


class EnqueuedGang(msgspec.Struct, frozen=True):
    """A gang that a host must enqueue."""

    seq: int
    text: str
    devices: tuple[int, ...]  # of this host
    reads: tuple[int, ...]  # buffers


class SentTransfer(msgspec.Struct):
    """A transfer that hosts must make. Bytes are by (from host, to host or -client)."""

    text: str
    nbytes: Counter[tuple[int, int]]
    known: bool = True  # False for a sparse exchange, whose bytes depend on contents ...
    pieces: dict[int, int] = msgspec.field(default_factory=dict)  # ... and whose number of pieces hosts are told


class Commanded(Collector):
    """Collects what hosts must do. It takes each event and its commands."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        # by host
        self.gangs: dict[int, list[EnqueuedGang]] = {}
        self.buffers: dict[int, dict[int, str]] = {}
        self.donated: dict[int, set[int]] = {}
        self.transfers: dict[int, SentTransfer] = {}
        self.abandoned: set[int] = set()
        self.excused: set[int] = set()  # transfers that did not end, for a legitimate reason
        self.lost: set[int] = set()  # hosts that were members and then were lost
        self._members: list[Spans] = []
        self._layouts: dict[int, Layout] = {}
        self._transfer_of: dict[int, int] = {}  # seq of a half -> transfer
        self._grow()

    @property
    def cluster(self) -> Cluster:
        """As it is now: it may have grown."""
        return self._controller.cluster

    def _grow(self) -> None:
        for host in range(len(self.gangs), self.cluster.hosts):
            self.gangs[host], self.buffers[host], self.donated[host] = [], {}, set()
        self._members += [spans.EMPTY] * (len(self.cluster.islands) - len(self._members))

    def heard(self, event: e.Event) -> None:
        message = event.message if isinstance(event, e.MessageReceived) else None
        for report in message.reports if isinstance(message, m.Reports) else ():
            if isinstance(report, m.Done) and report.blame is not None and report.blame.code in EXCUSED:
                self.excused.add(self._transfer_of.get(report.seq, -1))

    def saw(self, commands: Sequence[Any]) -> None:
        self._grow()
        super().saw(commands)
        for command in commands:
            if isinstance(command, e.Send) and isinstance(command.message, m.Seat):
                self.abandoned.update(command.message.abandon)
        for island, known in enumerate(self._members):
            members = self._controller.members(island)
            if members is not known:
                self.lost.update(spans.items(spans.minus(known, members)))
                self._members[island] = members

    def troubled(self, island: int) -> bool:
        """Whether the island has lost hosts."""
        return any(self.cluster.island_of_host(host).index == island for host in self.lost)

    def _ordered(self, message: m.Ordered) -> None:
        super()._ordered(message)
        for step in message.steps:
            if isinstance(step, m.PoisonStep) and step.blame.code in EXCUSED:
                self.excused.add(step.transfer)
            elif isinstance(step, m.ExpectStep) and step.transfer in self.transfers:
                self.transfers[step.transfer].pieces = dict(step.pieces)

    # --- buffers ----------------------------------------------------------------------------------------------

    def _comes(self, buffer: int, layout: Layout, text: str) -> None:
        self._layouts[buffer] = layout
        for host in hosts_of(layout.place, self.cluster):
            self.buffers[host].setdefault(buffer, text)

    def _id(self, header: m.RunHeader, island: int, slot: int) -> int:
        arg = self._plans[island, header.plan].slots[slot].arg
        named: int = ranges.each(header.args)[arg] if arg >= 0 else -1
        return named if named >= 0 else header.base + slot

    def _slot(self, header: m.RunHeader, island: int, slot: int) -> None:
        layout = self._plans[island, header.plan].slots[slot].layout
        buffer = self._id(header, island, slot)
        self._comes(buffer, layout, f"slot {slot} of {self._keys[header.run]}")

    def _run(self, island: int, header: m.RunHeader) -> None:
        super()._run(island, header)
        literals = dict(header.literals)
        for number, slot in enumerate(self._plans[island, header.plan].slots):
            if slot.arg in literals and slot != BLANK_SLOT:
                self._slot(header, island, number)

    # --- steps ------------------------------------------------------------------------------------------------

    def _gang(self, island: int, step: m.GangStep) -> None:
        super()._gang(island, step)
        header = self._headers[step.run]
        gang = self._plans[island, header.plan].steps[step.step]
        assert isinstance(gang, Gang)
        for slot in gang.outputs:
            self._slot(header, island, slot)
        donated = [self._id(header, island, slot) for slot in gang.donated] if step.donate else []
        reads = tuple(self._id(header, island, slot) for slot in gang.inputs)
        text = str(self.seen.orders[island][-1])
        where = device_spans(gang.place)
        for host in spans.items(step.hosts):
            mine = tuple(device for device in self.cluster.devices_of(host) if spans.contains(where, device))
            self.gangs[host].append(EnqueuedGang(step.seq, text, mine, reads))
            self.donated[host].update(donated)

    def _half(self, island: int, step: m.SendStep | m.RecvStep) -> None:
        super()._half(island, step)
        self._transfer_of[step.seq] = step.transfer
        if step.client:
            if isinstance(step, m.SendStep):
                self._get(step)
            return
        header = self._headers[step.run]
        plan = self._plans[island, header.plan]
        move = plan.steps[step.step]
        assert isinstance(move, Move)
        if isinstance(step, m.RecvStep):
            for slot in move.targets:
                self._slot(header, island, slot)
            return
        sources, targets = (tuple([plan.slots[slot].layout for slot in ends]) for ends in (move.sources, move.targets))
        nbytes: Counter[tuple[int, int]] = Counter()
        for host in () if move.sparse else spans.items(step.hosts):
            for receiver, _, size in sends_by_host(sources, targets, host, self.cluster):
                nbytes[host, receiver] += size
        text = f"step {step.step} {move.name!r} of {self._keys[step.run]}"
        self.transfers[step.transfer] = SentTransfer(text, nbytes, not move.sparse)

    def _get(self, step: m.SendStep) -> None:
        layout, nbytes = self._layouts.get(step.step), Counter[tuple[int, int]]()
        for host in spans.items(step.hosts) if layout is not None else ():
            for receiver, _, size in to_client(layout, step.client, host, self.cluster, step.shard):  # type: ignore[arg-type]
                nbytes[host, receiver] += size
        self.transfers[step.transfer] = SentTransfer(
            f"a get of client {self._client(step.client)!r}", nbytes, layout is not None
        )

    def _put(self, step: m.RecvStep) -> None:
        super()._put(step)
        if step.layout is not None:
            self._comes(step.step, step.layout, self._buffers[step.step][1])


class SentChunk(NamedTuple):
    transfer: int
    receiver: int
    piece: int
    offset: int
    nbytes: int


class HostActions:
    """What one host did, from the lines of its device log."""

    def __init__(self, lines: Sequence[Sequence[Any]]) -> None:
        self.launched: list[int] = []  # seqs
        self.freed: Counter[int] = Counter()
        self.freed_after: dict[int, int] = {}  # buffer -> how many launches came before its first free
        self.chunks: Counter[SentChunk] = Counter()  # chunk -> times sent
        frames: set[tuple[SentChunk, int]] = set()
        self.begun = 0
        for kind, *rest in lines:
            if kind == device_log.LAUNCH:
                self.launched.append(rest[0])
            elif kind == device_log.FREE:
                self.freed[rest[0]] += 1
                self.freed_after.setdefault(rest[0], len(self.launched))
            elif kind == device_log.CHUNK:
                *said, frame, repeated = rest
                chunk = SentChunk(*said)
                self.chunks[chunk] += repeated or (chunk, frame) not in frames
                frames.add((chunk, frame))
            else:
                self.begun += 1


def read(log: Log, policy: Callable[[], Policy] | None = None) -> tuple[ClusterSeen, Commanded]:
    """Replay a recorded controller's log, and return its decisions and what hosts had to do."""
    controller = eventlogs.machine_of(log.about, policy=policy)
    found = Commanded(controller)
    for entry, commands in zip(log.entries, replayed(log, controller), strict=True):
        found.heard(entry.event)
        found.saw(commands)
    return found.end(), found


def witnessed(folder: Path, hosts: int) -> dict[int, HostActions]:
    return {host: HostActions(list(device_log.lines_of(device_log.file_of(folder, host)))) for host in range(hosts)}
