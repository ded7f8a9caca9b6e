"""Which agent has which host number: agents enrol by name, and get their number again when they come back.

An agent that is connected cannot be replaced by another of the same name; one that has gone or restarted can. An
agent's devices must be those of the cluster's description. They must have at least the described memory, since
programs are admitted by the description. Neighbour: `server`.
"""

import logging
from collections.abc import Callable
from difflib import get_close_matches

import grpc
import msgspec

from core.model import GIB, Cluster, Island

from ..node import CallError
from ..wire import Enrol
from .state_folder import JsonFile

TAKEN = grpc.StatusCode.ALREADY_EXISTS
UNLIMITED = ("cpu", "timed")  # platforms whose devices report no memory, since they have none of their own
log = logging.getLogger("seaway.controller")


class Enrolment:
    """The registry. `cluster`: as it is now. `connected(host)`: whether its process has a stream to us now. `known`:
    state of earlier starts, so that agents need not enrol again when their controller is restarted."""

    def __init__(
        self, cluster: Callable[[], Cluster], connected: Callable[[int], bool], known: JsonFile | None = None
    ) -> None:
        self._now, self._connected, self._known = cluster, connected, known
        self.drained: Callable[[int], bool] = lambda host: False  # whether it is to stay away
        self._agents: dict[int, Enrol] = {}  # by host: the last agent that had the number
        for host, agent in (known.read() if known else {}).items():
            if 0 <= host < self._cluster.hosts and agent.devices == self._cluster.island_of_host(host).devices_per_host:
                self._agents[host] = agent
        self._earlier = set(self._agents)  # hosts of an earlier start whose agents have not enrolled since
        self._warned: set[str] = set()  # islands whose memory has been warned about

    @property
    def _cluster(self) -> Cluster:
        return self._now()

    def enrol(self, request: Enrol) -> int:
        """Gives an agent its number. Raises Wrong."""
        if request.rank >= 0 and request.host < 0:
            request = self._ranked(request)
        known = [host for host, agent in self._agents.items() if agent.name == request.name]
        if known and self._connected(known[0]) and self._agents[known[0]].start != request.start:
            at = self._agents[known[0]].address
            raise CallError(
                f"an agent named {request.name!r} is here already, at {at}: give this one another --name, or end "
                "that one",
                TAKEN,
            )
        if known and request.host in (-1, known[0]):
            self._fits(request, self._cluster.island_of_host(known[0]))
            return self._take(known[0], request)
        host = self._requested(request) if request.host >= 0 else self._free(request)
        self._fits(request, self._cluster.island_of_host(host))
        return self._take(host, request)

    def _take(self, host: int, request: Enrol) -> int:
        if self.drained(host):
            raise CallError(f"host {host} was drained: `seaway uncordon` for {request.name!r} lets it come back")
        self._has_memory(request, self._cluster.island_of_host(host))
        self._agents[host] = request
        self._earlier.discard(host)
        if self._known is not None:
            self._known.write(self._agents)
        return host

    def _ranked(self, request: Enrol) -> Enrol:
        islands = self._cluster.islands
        if not request.island and len(islands) > 1:
            names = ", ".join(repr(island.name) for island in islands)
            raise CallError(f"rank {request.rank} of which island? Give --island, one of {names}")
        island = self._island(request.island) if request.island else islands[0]
        if request.rank >= island.hosts:
            raise CallError(
                f"island {island.name!r} has hosts 0-{island.hosts - 1}, but this agent asks for host "
                f"{request.rank} of it"
            )
        return msgspec.structs.replace(request, island=island.name, host=island.base_host + request.rank)

    def _requested(self, request: Enrol) -> int:
        if request.host >= self._cluster.hosts:
            raise CallError(
                f"there is no host {request.host}: the cluster has hosts 0-{self._cluster.hosts - 1}. `seaway "
                "grow`, with a file that has more, makes room for it"
            )
        island = self._cluster.island_of_host(request.host)
        if request.island and request.island != island.name:
            raise CallError(f"host {request.host} is one of island {island.name!r}, not of {request.island!r}")
        self._fits(request, island)
        if self._taken(request.host, request):
            agent = self._agents.get(request.host)
            name, at = (agent.name, agent.address) if agent else ("unknown to this --state", "some address")
            raise CallError(f"host {request.host} is here already: agent {name!r} at {at}", TAKEN)
        return request.host

    def wanted(self, request: Enrol) -> int:
        """The island for which a refused host asked; -1: any, or one that does not exist."""
        islands = self._cluster.islands
        if 0 <= request.host < self._cluster.hosts:
            return self._cluster.island_of_host(request.host).index
        found = [island.index for island in islands if request.island in ("", island.name)]
        return found[0] if len(found) == 1 else -1

    def _free(self, request: Enrol) -> int:
        islands = [self._island(request.island)] if request.island else list(self._cluster.islands)
        # islands for which it has enough memory come first
        islands.sort(key=lambda island: _lacks_memory(request, island))
        for island in islands:
            for host in range(island.base_host, island.base_host + island.hosts):
                free = host not in self._agents and not self._taken(host, request)
                if free and island.devices_per_host == request.devices:
                    return host
        for island in islands:  # otherwise a number whose agent has gone
            for host in range(island.base_host, island.base_host + island.hosts):
                if not self._taken(host, request) and island.devices_per_host == request.devices:
                    return host
        shape = "; ".join(self._cluster.describe().splitlines())
        where = f"island {request.island!r}" if request.island else "the cluster"
        raise CallError(
            f"{where} has no free host with {request.devices} devices: {shape}. `seaway "
            "grow`, with a file that has more hosts, makes room for it; or end an agent",
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        )

    def _island(self, name: str) -> Island:
        names = [island.name for island in self._cluster.islands]
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(map(repr, names))}"
            raise CallError(f"no island is called {name!r}; {hint}", grpc.StatusCode.NOT_FOUND)
        return self._cluster.island(name)

    def _taken(self, host: int, request: Enrol) -> bool:
        """Perhaps by an agent that another state of the controller knows."""
        agent = self._agents.get(host)
        return self._connected(host) and (agent is None or agent.start != request.start)

    def _fits(self, request: Enrol, island: Island) -> None:
        if request.devices != island.devices_per_host:
            raise CallError(
                f"agent {request.name!r} has {request.devices} devices, but hosts of island {island.name!r} have "
                f"{island.devices_per_host}"
            )
        others = {
            agent.platform for host, agent in self._agents.items() if self._is_on(island, host) and self._counts(host)
        }
        if others and request.platform not in others:
            raise CallError(
                f"agent {request.name!r} has {request.platform} devices, but island {island.name!r} has "
                f"{', '.join(sorted(others))}: one program cannot run on both"
            )

    def _has_memory(self, request: Enrol, island: Island) -> None:
        """Checks that its devices have the memory by which programs will be admitted."""
        agent_memory = f"agent {request.name!r} has {_gib(request.memory)} on each device for programs"
        if _lacks_memory(request, island) and not island.assumed:
            raise CallError(
                f"{agent_memory}, but the cluster's file says {_gib(island.memory)} for island {island.name!r}: "
                f"programs that are admitted would not fit. Write memory = {request.memory} there (less what other "
                "software needs) and start the controller again; or give the agent more (--memory, devices that no "
                "other process uses)"
            )
        if island.name in self._warned:
            return
        if not request.memory and not island.assumed and request.platform not in UNLIMITED:
            self._warned.add(island.name)
            log.warning(
                "agent %r does not know the memory of its devices; the cluster's file says %s for each of island %r, "
                "which is unchecked",
                request.name, _gib(island.memory), island.name,
            )  # fmt: skip
        elif request.memory and island.assumed and request.memory != island.memory:
            self._warned.add(island.name)
            log.warning(
                "%s, but programs of island %r are admitted as if it were %s, since no file says otherwise: write "
                "memory = %d for the island in a file, and start the controller with --cluster FILE; or "
                "sw.local(memory=...)",
                agent_memory, island.name, _gib(island.memory), request.memory,
            )  # fmt: skip

    def _counts(self, host: int) -> bool:
        """Whether a host counts: one of an earlier start that never came back may be gone for good."""
        return host not in self._earlier or self._connected(host)

    @staticmethod
    def _is_on(island: Island, host: int) -> bool:
        return island.base_host <= host < island.base_host + island.hosts

    # --- queries --------------------------------------------------------------------------------------------------

    def platform_of(self, island: int) -> str:
        mine = [host for host in self._agents if self._is_on(self._cluster.islands[island], host)]
        for host in sorted(mine, key=self._counts, reverse=True):  # hosts of an earlier start come last
            return self._agents[host].platform
        return ""

    def platforms(self) -> tuple[str, ...]:
        """The platforms for which clients lower their code."""
        return tuple(sorted({agent.platform for agent in self._agents.values()}))

    def agents(self) -> dict[int, Enrol]:
        return dict(self._agents)


def _lacks_memory(request: Enrol, island: Island) -> bool:
    """Whether its devices have too little memory. 0 means unknown or unlimited."""
    return 0 < request.memory < island.memory


def _gib(count: int) -> str:
    return f"{count} bytes ({count / GIB:.2f} GiB)"
