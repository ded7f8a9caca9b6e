"""A cluster that stands: all hosts have joined, and the first epoch of every island has formed, at time 0.

Everybody says what core's machines say when they meet, and nothing of it takes time: what is simulated begins
with a cluster that is up. (Later epochs form in simulated time.)
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from core import effects as e
from core import spans

from .network import CONTROLLER
from .processes import Process

if TYPE_CHECKING:
    from .simulation import Simulation


def boot(sim: Simulation) -> None:
    """Exact fidelity."""
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
    sim.controller_process.arm()
