"""Carries out faults on a simulated cluster, at once, and repairs.

`faults` are the same faults, announced with their times. A user's own SimPy process may call these methods, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from core.model import spans
from core.protocol import effects as e
from core.protocol import messages as m

from ..engine import Unannounced
from ..hosts import HostProcess
from ..network import CONTROLLER
from .faults import Fault

if TYPE_CHECKING:
    from .simulation import Simulation


class FaultInjection:
    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._leaving: dict[int, None] = {}
        self._unaware: dict[int, list[int]] = {}  # by lost process: peers that have not learnt of the loss

    def befall(self, fault: Fault) -> None:
        whom, after = fault.whom, fault.duration
        if fault.what == "slow":
            self.slow(int(whom), fault.factor)
            if after is not None:
                self._sim.clock.at(self._sim.now + after, self.slow, whom, 1.0)
        elif fault.what == "cut":
            self.cut(int(whom), duration=after)
        elif fault.what == "fail_gang":
            self.fail_gang(int(whom), fault.name)
        else:
            getattr(self, fault.what)(whom)

    def _single_host(self, host: int) -> HostProcess:
        """A host that is simulated by itself, since the fault does not happen to its neighbours."""
        cohort = self._sim.islands.get(self._sim.island_of(host))
        if cohort is not None and cohort.history is not None:
            self._sim.take_over(cohort.island.index)
        found = self._sim.lone_hosts.get(host)
        if found is None:
            raise Unannounced(
                f"host {host} is simulated in a cohort of alike hosts, and a fault that makes them differ must be "
                "announced: Simulation(faults=[...]), or fidelity='exact'"
            )
        return found

    # --- faults ---------------------------------------------------------------------------------------------

    def slow(self, host: int, factor: float) -> None:
        """Makes a host's devices take `factor` times as long from now on; 1.0 repairs it."""
        self._sim.fabric.slow[host] = factor
        cohort = self._sim.islands.get(self._sim.island_of(host))
        if cohort is not None and spans.contains(cohort.island.host_span, host):
            cohort.slow(host - cohort.island.base_host, factor)

    def fail_gang(self, host: int, name: str, cause: str = "it divided by zero") -> None:
        """Makes the next gang of this name fail on this host. Hosts are alike until there is one (`go_apart`)."""
        cohort = self._sim.islands.get(self._sim.island_of(host))
        if cohort is None or cohort.history is None or cohort.names.has_gang(name):
            self._single_host(host)
        self._sim.fabric.failing[host, name] = m.Blame("user", cause)

    def go_apart(self, island: int) -> None:
        """Hosts of this island are simulated one by one from now on: a gang has been ordered that is to fail on one of
        them, or they have been together for too long without a checkpoint."""
        if island in self._sim.islands:
            self._sim.take_over(island)

    def lose_device(self, device: int) -> None:
        host = self._single_host(self._sim.cluster.host_of(device)).name
        self._sim.fabric.lose(device)
        self._sim.tell_host(host, e.DeviceLost(device, m.Blame("device-lost", f"device {device} is gone", host=host)))

    def crash_host(self, host: int) -> None:
        """Ends a host's process at once; its peers find out when its lease runs out, or when it comes back."""
        self._single_host(host).alive = False
        self._sim.fabric.die(host)
        self._sim.worlds.forget(host)
        self._gone(host)

    def _gone(self, name: int) -> None:
        """Tells the peers of a lost process when its lease has run out."""
        self._unaware[name] = self._end(name)
        self._sim.clock.at(self._sim.now + self._sim.times.lease, self._lost, name)

    def _end(self, name: int) -> list[int]:
        """Ends its links. Returns their other ends: the controller has one to each host, however deep in a tree."""
        partners = sorted({*self._sim.network.partners(name), CONTROLLER} - {name})
        self._sim.part(name)
        self._sim.network.end(name)
        self._sim.contents.end(name)
        return partners

    def is_unheard(self, name: int) -> bool:
        """Whether the peers of a lost process do not know of its loss yet."""
        return name in self._unaware

    def _lost(self, name: int) -> None:
        for partner in self._unaware.pop(name, []):
            self._sim.process(partner).lose(name, "its connection was lost, and its lease has run out")

    def return_host(self, host: int) -> None:
        """Starts a host again as a new process without any state."""
        if self._single_host(host).alive:
            self.crash_host(host)
        self._leaving.pop(host, None)
        for partner in self._unaware.pop(host, []):
            self._sim.process(partner).lose(host, "it began anew")
        process = self._sim.lone_hosts[host] = self._sim.new_host(host)
        process.serve(e.Connected(CONTROLLER), self._sim.now)

    def leave_host(self, host: int) -> None:
        """A planned stop: the host is drained, and does not come back."""
        self._leaving[host] = None
        self._single_host(host).serve(e.LeaveRequested("a pre-emption notice"), self._sim.now)

    def stopped(self, process: HostProcess, reason: str, for_good: bool = False) -> None:
        """Stops a host that the controller has dismissed; it restarts later, unless it was to leave."""
        if process.alive:
            self._sim.tell(f"host {process.name} stops: {reason}")
            self.crash_host(process.name)
            if process.name not in self._leaving and not for_good:
                self._sim.clock.at(self._sim.now + self._sim.times.restart, self._restart, process)

    def _restart(self, process: HostProcess) -> None:
        if self._sim.lone_hosts[process.name] is process:
            self.return_host(process.name)

    # --- what an operator does -------------------------------------------------------------------------------

    def drain_host(self, host: int) -> None:
        """Slices move away from the host, and then it leaves."""
        self._single_host(host)
        self._operate(e.OperateHost(host, "drain"))

    def grow(self, host: int) -> None:
        """The operator gives the controller more hosts, which are started: this one, and those behind it that are not
        announced to come later."""
        sim, known, cluster = self._sim, self._sim.controller.cluster, self._sim.grown.pop(0)
        if known.hosts > sim.cluster.island_of_host(host).base_host:  # others of its island are there
            self._single_host(host - 1)
        new = [sim.new_host(number) for number in range(known.hosts, cluster.hosts)]
        sim.lone_hosts |= {process.name: process for process in new}
        self._operate(e.GrowCluster(cluster))
        for process in new:
            process.serve(e.Connected(CONTROLLER), sim.now)

    def move_client(self, name: str) -> None:
        """All slices of this client go to other devices."""
        self._of_client(name, "move")

    def suspend_client(self, name: str) -> None:
        """Its arrays go to host memory, until `resume_client`."""
        self._of_client(name, "suspend")

    def resume_client(self, name: str) -> None:
        self._of_client(name, "resume")

    def _of_client(self, name: str, action: Literal["move", "suspend", "resume"]) -> None:
        for client in self._sim.controller.snapshot().clients:
            if client.name == name:
                self._operate(e.OperateSlices(client.number, action))

    def _operate(self, event: e.Event) -> None:
        self._sim.controller_process.serve(event, self._sim.now)

    # --- clients and wires -----------------------------------------------------------------------------------

    def crash_client(self, name: str) -> None:
        for client in self._sim.clients:
            if client.title == name and client.alive:
                for host in range(self._sim.controller.cluster.hosts) if self._sim.islands else ():
                    self._single_host(host)
                client.alive = False
                self._gone(client.name)

    def cut(self, one: int, other: int = CONTROLLER, duration: int | None = None) -> None:
        """Cuts a connection for `duration`, or until `mend`. After a lease, both ends take each other for lost."""
        for host in (one, other):
            if host >= 0:
                self._single_host(host)
        self._sim.network.cut(one, other)
        if duration is not None:
            self._sim.clock.at(self._sim.now + duration, self.mend, one, other)
        self._sim.clock.at(
            self._sim.now + self._sim.times.lease, self._expire, one, other, self._sim.network.cuts(one, other)
        )

    def mend(self, one: int, other: int = CONTROLLER) -> None:
        self._sim.network.mend(one, other)

    def _expire(self, one: int, other: int, cut: int) -> None:
        network = self._sim.network
        if network.cuts(one, other) == cut and network.link(one, other).held is not None:
            self._sim.process(one).lose(other, "the connection was cut")
            self._sim.process(other).lose(one, "the connection was cut")

    def close(self, name: int, reason: str) -> None:
        """Records that the controller closes a connection."""
        self._sim.tell(f"the controller closes {name}: {reason}")
