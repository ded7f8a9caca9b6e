"""A JAX program's session on a real cluster, through a door; and a simulated client that makes the same calls.

    recorded(program, folder)     leaves the controller's event log and the hosts' device logs in the folder
    simulated(log, calls)         the decisions of a simulated controller

The simulated client waits where any JAX program has to: for the answer to a program that is compiled, and for contents
that it reads. Neighbours: `rig`, the same for clients of core's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from backend.server import eventlogs
from core.client import Blocked, Client
from core.controller import Config
from core.model import Cluster, ranges
from core.protocol import effects as e
from core.protocol import messages as m
from core.record import Log
from experiments.bench.frame.door_server import on_cluster
from seaway.tools.parity import edge, forced
from seaway.tools.parity.collect import ClusterSeen, Watched
from seaway.tools.parity.compare import Comparison
from seaway.tools.parity.parity_runs import log_of
from sim.hardware import setups
from sim.hardware.profiles import profile
from sim.simulation.simulation import Simulation
from tests.backend.door.program_runs import python

HOSTS, DEVICES = 2, 2  # of each host
NAME, WEIGHT = "alice", 3
PATIENCE = 60.0  # seconds
LOOK = 0.1


# --- real -----------------------------------------------------------------------------------------------------------


class DoorSession:
    """What is left of a JAX program's session. `devices`: hosts did what they were told."""

    def __init__(self, printed: str, log: Log, seen: ClusterSeen, devices: Comparison) -> None:
        self.printed, self.log, self.seen, self.devices = printed, log, seen, devices

    @property
    def calls(self) -> list[m.Call]:
        """All calls of its client, in the order in which the controller heard them."""
        found: list[m.Call] = []
        for entry in self.log.entries:
            message = entry.event.message if isinstance(entry.event, e.MessageReceived) else None
            if isinstance(message, m.Calls):
                found += message.calls
            elif isinstance(message, m.Call):
                found.append(message)
        return found


def recorded(program: str, folder: Path) -> DoorSession:
    controller = ["--record", str(log_of(folder))]
    agents = ["--trust-clients", "--witness", str(folder)]
    door = ["--name", NAME, "--weight", str(WEIGHT)]
    with on_cluster(HOSTS, DEVICES, controller=controller, agents=agents, door=door) as served:
        ended = python("-c", program, env=served.door.env)
        assert ended.code == 0, f"{ended.out}\n{ended.err[-4000:]}"
        _until(lambda: not served.cluster.status()["clients"])
        served.cluster.controller.process.terminate()  # in order: then its log is complete
        served.cluster.controller.process.wait(PATIENCE)
        log = eventlogs.read(log_of(folder))
        seen, commanded = edge.read(log)

        def compared() -> Comparison:
            return forced.compare(commanded, edge.witnessed(folder, HOSTS))

        _until(lambda: compared().equal, strict=False)  # what was said last may still be on its way
        return DoorSession(ended.out, log, seen, compared())


def _until(true: Callable[[], object], strict: bool = True) -> None:
    end = time.monotonic() + (PATIENCE if strict else PATIENCE / 10)
    while not true():
        if time.monotonic() > end:
            assert not strict, "the session does not end"
            return
        time.sleep(LOOK)


# --- simulated ------------------------------------------------------------------------------------------------------


def simulated(log: Log, calls: Sequence[m.Call]) -> ClusterSeen:
    """What a controller of the recorded one's cluster and settings decides when it gets these calls."""
    cluster = msgspec.convert(log.about.cluster, Cluster)
    island = {"name": "i", "kind": "cpu", "hosts": HOSTS, "devices_per_host": DEVICES}
    setup = msgspec.structs.replace(setups.load({"name": "door", "island": [island]}), cluster=cluster)
    config = msgspec.convert(log.about.config["controller"], Config)
    sim = Simulation(setup, profile=profile("seaway"), config=config)  # the policy is `fifo` on both sides
    watched = Watched(sim.controller)
    sim.controller_process.machine = watched
    user = RepeatedCalls(sim)
    for call in calls:
        user.make(call)
    sim.run(until=lambda: not any(map(sim.controller.left().get, ("clients", "buffers", "runs"))))
    return watched.collector.end()


class RepeatedCalls:
    """Makes recorded calls, with the names that things have in the simulation."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._user = sim.client(NAME, weight=WEIGHT)
        self._user.on_effect = self._hear
        self._programs: dict[int, int] = {}  # its name in the record -> its name here
        self._buffers: dict[int, int] = {}
        self._told: set[int] = set()  # programs
        self._read: set[int] = set()  # requests

    def make(self, call: m.Call) -> None:
        made = self._user.call(partial(self._act, call))
        assert not isinstance(made, Blocked)
        match call:
            case m.Register(program=program, tell=tell):
                self._programs[program] = made
                if tell:
                    self._sim.run(until=lambda: made in self._told)
            case m.Submit(results=results):
                self._buffers.update(zip(ranges.each(results), made.results, strict=True))
            case m.Put(buffer=buffer):
                self._buffers[buffer] = made
            case m.Get():
                self._sim.run(until=lambda: made in self._read)
            case _:
                pass

    def _act(self, call: m.Call, client: Client, now: int) -> Any:
        match call:
            case m.Register(ir=ir, tell=tell):
                return client.register(ir, now, tell=tell)
            case m.Unregister(program=program):
                return client.unregister(self._programs[program], now)
            case m.Submit():
                keep = tuple(bool(name) for name in ranges.each(call.results))
                args = tuple(self._buffers[arg] if isinstance(arg, int) else arg for arg in ranges.each(call.args))
                return client.submit(self._programs[call.program], args, now, keep=keep, dispatch=call.dispatch)
            case m.Put(value=value, slice=where):
                return client.put(value, where, now)
            case m.Get(buffer=buffer, shard=shard):
                return client.get(self._buffers[buffer], now, shard)
            case m.Release(buffers=buffers):
                return client.release(tuple(self._buffers[name] for name in ranges.each(buffers)), now)
            case m.CloseSession():
                return client.close(now)
            case _:
                raise NotImplementedError(call)

    def _hear(self, effect: e.Command) -> None:
        match effect:
            case e.ProgramTold(program=program, blame=blame):
                assert blame is None
                self._told.add(program)
            case e.Received(request=request):
                self._read.add(request)
            case _:
                pass
