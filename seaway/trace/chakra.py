"""Writes a trace as Chakra execution traces: nodes of each device that ran something, in files as ASTRA-sim reads them.

A gang becomes a computing node; or, where the trace knows what its steps did (`step_works`), one for their own work and
one for each collective, beside those for the work that hides it. ASTRA-sim has no permute: each member sends and
receives, as the ends of a transfer do. A device's nodes follow one another as on the device, and a gang that began when
a transfer had ended waits for that, too. What devices waited for otherwise (clients, hosts) is not in the files, and
neither are puts and gets of clients. A transfer's device that has the source's part already receives nothing.

Neighbours: `seaway.chakra_files` has the format, `facts` the rows, `step_works` what gangs did. The functions that
matter: `write`, `chunks`, `_pieces`, `_transfers`.
"""

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import count
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from core.model import Place
from core.record import Lists

from ..chakra_files import COLLECTIVE, COMPUTE, GROUPS, RECV, SEND, VERSION, attribute, classes, framed
from .facts import Facts
from .step_works import GangWorks, StepWork

TYPES = {"all-reduce": 0, "all-gather": 2, "all-to-all": 6, "reduce-scatter": 7}  # `comm_type`
KINDS = {  # of values, by attribute
    "is_cpu_op": "bool", "num_ops": "int64", "tensor_size": "uint64", "comm_type": "int64", "comm_size": "int64",
    "comm_src": "int32", "comm_dst": "int32", "comm_tag": "int32", "pg_name": "string", "duration_ns": "uint64",
}  # fmt: skip
NO_GANG = -1
Deps = tuple[int, ...]


class Role(NamedTuple):
    """A device's part in a collective. `group`: its number, 0 for all ranks. Of a permute: the ranks beside it."""

    group: int
    before: int = -1
    after: int = -1


class GangNode(NamedTuple):
    """A node of a gang, for any of its devices. `after`: pieces before it; (): it waits for what the gang waits for."""

    kind: int
    takes: int
    began: int
    after: Deps
    use: int = -1  # which collective of the work
    tag: int = 0


class Message(NamedTuple):
    """One device's end of a transfer."""

    kind: int
    name: str
    peer: int
    nbytes: int
    tag: int
    began: int
    takes: int


class WrittenGang(NamedTuple):
    name: str
    began: int
    own: list[int]  # nanoseconds of each step's own work
    work: StepWork


def write(facts: Facts, lists: Lists, works: GangWorks, folder: Path, span: tuple[int, int], limit: int) -> Path:
    """Write the gangs that began in the span. Files of an earlier trace of that name are replaced."""
    what = f"trace.chakra({str(folder)!r})"
    writer = ChakraWriter(facts, lists, works, span, limit, what)
    if not writer.ranks:
        raise ValueError(f"{what}: no gang began in the window, so there is nothing to write")
    chunks = writer.chunks()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.et"):
        if old.name.startswith(f"{folder.name}.") and old.stem.rpartition(".")[2].isdigit():
            old.unlink()
    for device, rank in writer.ranks.items():
        about = [attribute("written_by", "string", "seaway"), attribute("device", "uint64", device)]
        head = framed(classes()["GlobalMetadata"](version=VERSION, attr=about))
        (folder / f"{folder.name}.{rank}.et").write_bytes(b"".join([head, *chunks[device]]))
    groups = {str(number): ranks for ranks, number in writer.groups.items() if number}
    (folder / GROUPS).write_text(json.dumps(groups) + "\n", encoding="utf-8")
    return folder


class ChakraWriter:
    def __init__(
        self, facts: Facts, lists: Lists, works: GangWorks, span: tuple[int, int], limit: int, what: str
    ) -> None:
        self._facts, self._lists, self._limit, self._what = facts, lists, limit, what
        began = (facts.end >= 0) & (facts.start >= span[0]) & (facts.start < span[1])
        order = np.argsort(facts.gangs["seq"], kind="stable")
        self._rows: list[int] = order[began[order]].tolist()
        by_seq = works.by_seq()
        self._works = {row: by_seq.get(int(facts.gangs["seq"][row])) for row in self._rows}
        self._places: dict[Place | int, list[int]] = {}  # devices, in the order of the slice where that is known
        self.ranks: dict[int, int] = {}  # by device, in the order in which they are first used
        for row in self._rows:
            for device in self._devices(row):
                self.ranks.setdefault(device, len(self.ranks))
        self.groups: dict[Deps, int] = {tuple(range(len(self.ranks))): 0}
        self._roles: dict[int, dict[int, tuple[Role, ...]]] = {}  # by work, by device
        self._tags, self._next, self._count = count(), 0, 0
        self._messages: dict[tuple[int, int, int], list[Message]] = defaultdict(list)  # by kind, row and device
        self._transfers(span)

    def _devices(self, row: int) -> list[int]:
        work, key = self._works[row], int(self._facts.gangs["place"][row])
        where: Place | int = key if work is None else work.place
        if where not in self._places:
            spans = self._facts.places[key].devices
            plain = [device for low, high in spans for device in range(low, high)]
            self._places[where] = plain if work is None else list(work.place.devices())
            self._places.setdefault(key, self._places[where])
        return self._places[where]

    def chunks(self) -> dict[int, list[bytes]]:
        """By device: its nodes, in parts, which devices share that did the same."""
        found: dict[int, list[bytes]] = {device: [] for device in self.ranks}
        last: dict[int, Deps] = dict.fromkeys(found, ())
        for device, part in found.items():
            self._ends(SEND, NO_GANG, device, (), part)
        for row in self._rows:
            gang, devices = self._gang(row), self._devices(row)
            pieces, tail = self._pieces(gang)
            begin, known = self._new(len(pieces), len(devices), gang.name), dict[tuple[Deps, Any], bytes]()
            for device in devices:
                waits = last[device] + self._ends(RECV, row, device, (), found[device])
                key = waits, self._roles_of(gang.work).get(device, ())
                if key not in known:
                    known[key] = b"".join(self._encoded(pieces, gang, self.ranks[device], begin, *key))
                found[device].append(known[key])
                last[device] = tuple(begin + one for one in tail)
                self._ends(SEND, row, device, last[device], found[device])
        for device, part in found.items():
            self._ends(RECV, NO_GANG, device, (), part)
        return found

    def _new(self, nodes: int, devices: int, name: str) -> int:
        begin = self._next
        self._next += nodes
        self._count += nodes * devices
        if self._count > self._limit:
            raise ValueError(
                f"{self._what}: with {name!r} there are more than limit={self._limit:,} "
                f"nodes in the files of {len(self.ranks):,} ranks: take a shorter window=, or raise the limit"
            )
        return begin

    # --- gangs ----------------------------------------------------------------------------------------------

    def _gang(self, row: int) -> WrittenGang:
        facts, work = self._facts, self._works[row]
        began = int(facts.start[row])
        total = self._alone(row) if facts.lone[row] else int(facts.end[row]) - began
        if work is None:
            work = StepWork(Place(0, ()), total)
        fit = round(total / work.takes) if work.takes else 1
        steps = max(1, min(fit, work.steps))  # it was cut to as many as fit, or waited for links
        own = max(0, total - steps * (work.takes - work.duration))  # on a slow host all of it takes longer
        each = [own * (number + 1) // steps - own * number // steps for number in range(steps)]
        return WrittenGang(str(facts.words[facts.gangs["step"][row]]), began, each, work)

    def _alone(self, row: int) -> int:
        """The longest time of one host in a gang whose hosts ran it one by one."""
        gangs = self._facts.gangs
        began, ended = (np.array(self._lists.get(int(gangs[name][row]))) for name in ("hosts", "ends"))
        return int((ended - ended.max() + gangs["ended"][row] - began - gangs["enqueued"][row]).max())

    def _pieces(self, gang: WrittenGang) -> tuple[list[GangNode], Deps]:
        """(pieces, those after which the gang is over)."""
        found: list[GangNode] = []
        uses = [
            (at, one)
            for at, one in enumerate(gang.work.collectives)
            if prod(size for size, _ in _levels(gang.work, at)) > 1
        ]
        after: Deps = ()
        began = gang.began
        for own in gang.own:
            plain = max(0, own - sum(one.collective.count * one.collective.hidden for _, one in uses))
            if plain or not uses:
                found.append(GangNode(COMPUTE, plain, began, after))
                after = (len(found) - 1,)
            left, began = own - plain, began + plain
            for at, one in uses:
                for _ in range(one.collective.count):
                    beside, begin = min(one.collective.hidden, left), len(found)
                    tag = next(self._tags)
                    kinds = (SEND, RECV) if one.collective.kind == "permute" else (COLLECTIVE,)
                    found += [GangNode(kind, one.takes, began, after, at, tag) for kind in kinds]
                    found += [GangNode(COMPUTE, beside, began, after)] if beside else []
                    after = tuple(range(begin, len(found)))
                    left, began = left - beside, began + max(beside, one.takes)
        return found, after

    def _roles_of(self, work: StepWork) -> dict[int, tuple[Role, ...]]:
        """By device: its part in each collective."""
        if id(work) not in self._roles:
            devices = list(work.place.devices())
            roles: dict[int, list[Role]] = {device: [] for device in devices}
            for at, use in enumerate(work.collectives):
                for group in _groups(work, at):
                    ranks = [self.ranks[devices[one]] for one in group]
                    permutes = use.collective.kind == "permute"
                    number = 0 if permutes else self.groups.setdefault(tuple(ranks), len(self.groups))
                    for place, one in enumerate(group):
                        beside = (ranks[place - 1], ranks[(place + 1) % len(ranks)]) if permutes else ()
                        roles[devices[one]].append(Role(number, *beside))
            self._roles[id(work)] = {device: tuple(some) for device, some in roles.items()}
        return self._roles[id(work)]

    def _encoded(
        self, pieces: list[GangNode], gang: WrittenGang, rank: int, begin: int, waits: Deps, roles: tuple[Role, ...]
    ) -> list[bytes]:
        found = []
        for number, piece in enumerate(pieces, begin):
            after = tuple(begin + one for one in piece.after) if piece.after else waits
            work, name, about = gang.work, gang.name, dict[str, Any]()
            if piece.use < 0:
                part = piece.takes / work.duration if work.duration else 0
                if work.flops or work.hbm_bytes:
                    about = {"num_ops": round(work.flops * part), "tensor_size": round(work.hbm_bytes * part)}
            else:
                use, role = work.collectives[piece.use].collective, roles[piece.use]
                name, about = f"{name} {use.kind}", {"comm_size": use.nbytes}
                if piece.kind == COLLECTIVE:
                    about |= {"comm_type": TYPES[use.kind]} | ({"pg_name": str(role.group)} if role.group else {})
                else:
                    about |= _between(piece.kind, rank, role.after if piece.kind == SEND else role.before, piece.tag)
            found.append(_node(number, name, piece.kind, after, piece.began, piece.takes, about))
        return found

    # --- transfers ------------------------------------------------------------------------------------------

    def _transfers(self, span: tuple[int, int]) -> None:
        """Each device of the target gets its part from one of the source: after the last gang that had ended there when
        it began, and before the first one here that began when it had ended."""
        facts, moves = self._facts, self._facts.transfers
        began = np.where(moves["started"] >= 0, moves["started"], moves["entered"])
        between = (moves["source"] >= 0) & (moves["target"] >= 0) & (moves["ended"] >= 0)
        rows = np.flatnonzero(between & (began >= span[0]) & (moves["ended"] < span[1])).tolist()
        runs: dict[int, list[int]] = defaultdict(list)  # by device
        for row in self._rows if rows else ():
            for device in self._devices(row):
                runs[device].append(row)
        for move in rows:
            sources, targets = (self._at(int(moves[end][move])) for end in ("source", "target"))
            begin, end = int(began[move]), int(moves["ended"][move])
            tag, each = next(self._tags), int(moves["nbytes"][move]) // len(targets)
            about = each, tag, begin, end - begin
            for number, target in enumerate(targets):
                source = sources[number * len(sources) // len(targets)]
                if target in sources or source not in self.ranks or target not in self.ranks:
                    continue
                made = bisect_right(runs[source], begin, key=lambda row: int(facts.end[row]))
                read = bisect_left(runs[target], end, key=lambda row: int(facts.start[row]))
                maker = runs[source][made - 1] if made else NO_GANG
                reader = runs[target][read] if read < len(runs[target]) else NO_GANG
                name = str(facts.words[moves["step"][move]])
                self._messages[SEND, maker, source].append(Message(SEND, name, self.ranks[target], *about))
                self._messages[RECV, reader, target].append(Message(RECV, name, self.ranks[source], *about))

    def _at(self, key: int) -> list[int]:
        spans = self._facts.places[key].devices
        return self._places.get(key) or [device for low, high in spans for device in range(low, high)]

    def _ends(self, kind: int, row: int, device: int, waits: Deps, found: list[bytes]) -> Deps:
        """Adds the ends of transfers that a device has after or before a gang; returns their nodes."""
        nodes = []
        for one in self._messages.pop((kind, row, device), ()):
            about = {"comm_size": one.nbytes} | _between(kind, self.ranks[device], one.peer, one.tag)
            nodes.append(self._new(1, 1, one.name))
            found.append(_node(nodes[-1], one.name, kind, waits, one.began, one.takes, about))
        return tuple(nodes)


def _levels(work: StepWork, use: int) -> tuple[tuple[int, int], ...]:
    return work.collectives[use].collective.groups or ((work.place.size, 1),)


def _groups(work: StepWork, use: int) -> list[list[int]]:
    """Of the slice's devices, by number; a permute goes round in this order."""
    offsets = [0]
    for size, stride in _levels(work, use):
        offsets = [one + place * stride for one in offsets for place in range(size)]
    found: list[list[int]] = []
    seen: set[int] = set()
    for first in range(work.place.size):
        if first not in seen and first + max(offsets) < work.place.size:
            found.append([first + one for one in offsets])
            seen.update(found[-1])
    return found


def _between(kind: int, rank: int, peer: int, tag: int) -> dict[str, int]:
    source, target = (rank, peer) if kind == SEND else (peer, rank)
    return {"comm_src": source, "comm_dst": target, "comm_tag": tag % (1 << 31)}


def _node(number: int, name: str, kind: int, after: Deps, began: int, takes: int, about: dict[str, Any]) -> bytes:
    """`duration_micros` are whole ones; Seaway reads `duration_ns`, which others leave alone."""
    named = {"is_cpu_op": False, **about, "duration_ns": takes}
    attributes = [attribute(key, KINDS[key], each) for key, each in named.items()]
    return framed(
        classes()["Node"](
            id=number, name=name, type=kind, data_deps=after, start_time_micros=began // 1000,
            duration_micros=(takes + 500) // 1000, attr=attributes,
        )
    )  # fmt: skip
