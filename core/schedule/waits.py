"""Why a gang waits, in a word and in words: for people, and for the watchdog."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ..model import Spans, spans
from .contention import Contention, PlaceQueue
from .policy import Ticket
from .reservations import Reservation

Why = Literal["paused", "window", "passed", "reserved", "inputs", "policy"]


class WaitingGang(msgspec.Struct, frozen=True):
    """A gang that waits, and why."""

    ticket: Ticket
    why: Why
    text: str


class GangQueue(msgspec.Struct, frozen=True):
    """The gangs of one client that wait for one place, and why the first of them does."""

    first: WaitingGang
    devices: Spans
    count: int


def first_of_each_queue(tickets: Iterable[Ticket]) -> list[tuple[Ticket, int]]:
    """The first gang of each client and place, and how many wait there, the oldest run first."""
    found: dict[tuple[int, int, bool], list[Ticket]] = {}
    for ticket in tickets:
        found.setdefault((ticket.client, ticket.place, ticket.ripe), []).append(ticket)
    firsts = [(min(queue, key=lambda each: each.age), len(queue)) for queue in found.values()]
    return sorted(firsts, key=lambda each: each[0].age)


def waiting_gang(
    ticket: Ticket, lane: PlaceQueue, lanes: Contention, reserved: Sequence[Reservation], paused: bool
) -> WaitingGang:
    """`lane`: the queue of its place. `reserved`: what the policy keeps free. `paused`: the island stands still."""
    return WaitingGang(ticket, *_why(ticket, lane, lanes, reserved, paused))


def _why(
    ticket: Ticket, lane: PlaceQueue, lanes: Contention, reserved: Sequence[Reservation], paused: bool
) -> tuple[Why, str]:
    atoms = lanes.atoms
    if paused:
        return "paused", "the island is changing"
    if lane.full:
        full = [atom for atom in atoms.of(lane.key) if lanes.is_full(atom)]
        where = spans.text(spans.union(*(atoms.devices(atom) for atom in full)))
        ahead = max(map(lanes.ahead, full))
        return "window", f"{ahead} {'gang is' if ahead == 1 else 'gangs are'} ahead on devices {where}"
    if lane.barred is not None:
        where = spans.text(atoms.devices_of_key(lane.barred.key))
        return "passed", f"a gang on devices {where} has been passed too often, and goes first"
    if lane.kept:
        found = next(each for each in reserved if lane in each.lanes)
        whose = f" for run {found.gang.run}, step {found.gang.step}" if found.gang not in (None, ticket) else ""
        return "reserved", f"the policy keeps devices {spans.text(found.devices)} free{whose}"
    if not ticket.ripe and lane.ripe.get(ticket.client) is not ticket.queue:
        return "inputs", "its inputs come from another island, where they are not made yet"
    return "policy", "it may enter, and others go first"
