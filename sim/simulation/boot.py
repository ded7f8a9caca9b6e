"""Starts a cluster: all hosts have joined, and the first epoch of every island has formed, at time 0.

Core's machines exchange their usual messages, but these take no time: a simulation begins with a cluster that is
up. (Later epochs form in simulated time.)
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from core.model import spans
from core.protocol import effects as e
from core.protocol import messages as m

from ..hosts import Process
from ..network import CONTROLLER

if TYPE_CHECKING:
    from .simulation import Simulation


def boot(sim: Simulation) -> None:
    """Starts all hosts. Exactly simulated hosts speak for themselves; a cohort's executor gets the events of its
    hosts, and its commands stand for all of them."""
    todo: deque[tuple[Process, e.Effect]] = deque()
    worlds: dict[tuple[int, int], list[int]] = {}
    seats: dict[int, dict[int, m.Seat]] = {index: {} for index in sim.islands}
    controller = sim.controller_process
    for host in range(sim.controller.cluster.hosts):
        if sim.cluster.island_of_host(host).index in sim.islands:
            todo.append((controller, e.MessageReceived(host, m.Join(host, 1))))
        else:
            todo.append((sim.process(host), e.Connected(CONTROLLER)))
    while todo:
        process, event = todo.popleft()
        for effect in process.machine.handle(event, 0):
            _carry_out(sim, process, effect, todo, worlds, seats)
    for host in range(sim.controller.cluster.hosts):
        if sim.cluster.island_of_host(host).index not in sim.islands:
            sim.process(host).arm()
    controller.arm()


def _carry_out(
    sim: Simulation, process: Process, effect: Any, todo: deque[tuple[Process, e.Effect]],
    worlds: dict[tuple[int, int], list[int]], seats: dict[int, dict[int, m.Seat]],
) -> None:  # fmt: skip
    match effect:
        case e.Send(message=m.Seat() as seat) if seat.island in sim.islands:
            _seat(sim, seat, seats[seat.island], todo)
        case e.Send(peers=to, message=message):
            for peer in to:
                name = sim.process_of(peer) if process is sim.controller_process else peer
                todo.append((sim.process(name), e.MessageReceived(process.name, message)))
        case e.FormWorld(island=island, epoch=epoch):
            todo.append((process, e.WorldUp(island, epoch)))
        case e.Reform(epoch=epoch, members=members):
            come = worlds.setdefault((sim.cluster.island_of_host(process.name).index, epoch), [])
            come.append(process.name)
            if len(come) == spans.count(members):
                todo.extend((sim.process(host), e.Reformed(epoch)) for host in sorted(come))
        case _:
            pass


def _seat(sim: Simulation, seat: m.Seat, seats: dict[int, m.Seat], todo: deque[tuple[Process, e.Effect]]) -> None:
    """Collects a seat of a cohort's host. When the last host has its seat, the epoch's world is ready."""
    seats[seat.host] = seat
    island = sim.islands[seat.island]
    if len(seats) < spans.count(seat.members):
        return
    executor = island.parts.all[0].executor
    executor.handle(seats[executor.host], 0)
    executor.handle(e.Reformed(seat.epoch), 0)
    island.seated(seats[island.island.base_host])
    for host, its in seats.items():
        seated = m.Seated(host, its.epoch, its.tree, its.last)
        todo.append((sim.controller_process, e.MessageReceived(host, seated)))
