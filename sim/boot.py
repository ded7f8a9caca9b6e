"""A cluster that stands: all hosts have joined, and the first epoch of every island has formed, at time 0.

Everybody says what core's machines say when they meet, and nothing of it takes time: what is simulated begins
with a cluster that is up. (Later epochs form in simulated time.)
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from core import effects as e
from core import messages as m
from core import spans

from .network import CONTROLLER
from .processes import Process

if TYPE_CHECKING:
    from .simulation import Simulation


def boot(sim: Simulation) -> None:
    if sim.islands:
        _boot_cohorts(sim)
    else:
        _boot_hosts(sim)
    sim.controller_process.arm()


def _boot_cohorts(sim: Simulation) -> None:
    """An island's first executor hears what its hosts hear, and what it says they all say."""
    controller, seats = sim.controller, [dict[int, m.Seat]() for _ in sim.islands]
    todo: deque[Any] = deque()
    for host in range(sim.cluster.hosts):
        todo.append(e.Came(host, m.Join(host, 1)))
    while todo:
        for effect in controller.handle(todo.popleft(), 0):
            if isinstance(effect, e.FormWorld):
                todo.append(e.WorldUp(effect.island, effect.epoch))
            elif isinstance(effect, e.Send) and isinstance(effect.message, m.Seat):
                _seat(sim, effect.message, seats[effect.message.island], todo)


def _seat(sim: Simulation, seat: m.Seat, seats: dict[int, m.Seat], todo: deque[Any]) -> None:
    """When the last host has its seat, the epoch's world stands."""
    seats[seat.host] = seat
    island = sim.islands[seat.island]
    if len(seats) < spans.count(seat.members):
        return
    executor = island.parts[0].executor
    executor.handle(seats[executor.host], 0)
    executor.handle(e.Reformed(seat.epoch), 0)
    island.seated(seats)
    for host, its in seats.items():
        todo.append(e.Came(host, m.Seated(host, its.epoch, its.tree, its.last)))


def _boot_hosts(sim: Simulation) -> None:
    todo: deque[tuple[Process, e.Effect]] = deque()
    worlds: dict[tuple[int, int], list[int]] = {}

    def obey(process: Process, effect: Any) -> None:
        match effect:
            case e.Send(peers=to, message=message):
                for peer in to:
                    name = sim.process_of(peer) if process is sim.controller_process else peer
                    known_as = sim.connection(process.name) if name == CONTROLLER else process.name
                    todo.append((sim.process(name), e.Came(known_as, message)))
            case e.FormWorld(island=island, epoch=epoch):
                todo.append((process, e.WorldUp(island, epoch)))
            case e.Reform(epoch=epoch, members=members):
                key = (sim.cluster.island_of_host(process.name).index, epoch)
                come = worlds.setdefault(key, [])
                come.append(process.name)
                if len(come) == spans.count(members):
                    todo.extend((sim.process(host), e.Reformed(epoch)) for host in sorted(come))
            case _:
                pass

    for host in range(sim.cluster.hosts):
        todo.append((sim.process(host), e.Connected(CONTROLLER)))
    while todo:
        process, event = todo.popleft()
        for effect in process.machine.handle(event, 0):
            obey(process, effect)
    for host in range(sim.cluster.hosts):
        sim.process(host).arm()
