"""Opens sessions on a cluster: each is a client of the controller, and has a slice of devices before it is answered.

    a client connects --> a client of core, a program that asks for the platform --> the slice is bound, a host answers
    --> ClusterDevices --> the client's first request is answered

Until then the log says what the session waits for. `find_cluster` says at the start what is wrong: no controller, a
token that is refused, more devices than there are. The cluster is a `SessionSource`, which makes clients: a real one's
`RemoteSource`, or a simulated one. Neighbours: `door_session`, `cluster_link`, `cluster_devices`, `simulated_process`.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import grpc

from backend.auth import Access, Rules
from backend.client import Head
from backend.contents import StableHLOCode, stablehlo_code
from backend.node import CallError
from backend.pjrt.code import stablehlo_executables
from backend.sandbox import ProgramGate
from backend.streams import StreamRefused, dial
from backend.wire import Described, call_messages, versions
from backend.xla import flags_of
from core.model import Cluster, SeawayError

from ..protocol import StatusCode
from ..session import (
    DeviceFacts,
    DoorSession,
    MemoryFacts,
    Platform,
    SessionDevices,
    SessionLimits,
    SessionLink,
    StatusError,
    Version,
)
from .cluster_devices import ClusterDevices
from .cluster_executables import ClusterPrograms, StepTimes
from .cluster_link import CallWatch, RemoteLink, SessionLine
from .cluster_programs import Places, SessionIsland

log = logging.getLogger("seaway.door")
PRICES = 3.0  # seconds between questions how long programs take
ANSWER = 10.0  # seconds for the controller to say how long programs take
Serves = Callable[[ClusterDevices], SessionDevices]
WatchOf = Callable[[SessionLine], CallWatch]


class ClusterRefused(SeawayError):
    """The door cannot serve this cluster; the text says why, and what to do about it."""


@dataclass(frozen=True)
class ServedCluster:
    """`devices`: of each island of a session, 0: all. `islands`: their names, "a,b"; "all", or "": any one. `name`: of
    sessions' clients. `wait`: seconds for the controller to answer at the start."""

    address: str
    access: Access = field(repr=False)
    devices: int = 0
    islands: str = ""
    name: str = "jax"
    weight: int = 1
    priority: int = 0
    wait: float = 10.0


def session_islands_of(cluster: Cluster, devices: int, islands: str) -> tuple[SessionIsland, ...]:
    """Where a session has its devices, if it is to have so many of each of these islands (0: all that can be had).
    Raises ClusterRefused."""
    there = {each.name: each.devices for each in cluster.islands}
    told = ", ".join(f"{count} on island {name!r}" for name, count in there.items())
    if not islands:
        there, names = {"": max(there.values())}, [""]
    else:
        names = list(there) if islands == "all" else islands.split(",")
    for name in names:
        if name not in there:
            raise ClusterRefused(f"--islands {islands}: the cluster has no island {name!r}; there are {told}")
        if names.count(name) > 1:
            raise ClusterRefused(f"--islands {islands}: {name!r} is there twice")
        if devices > there[name]:
            raise ClusterRefused(
                f"--devices {devices}: a session has so many on each of its islands, and there are {told}"
            )
    return tuple(SessionIsland(name, devices or there[name]) for name in names)


async def find_cluster(head: Head, options: ServedCluster) -> tuple[Described, tuple[SessionIsland, ...]]:
    """What there is, and where sessions have their devices. Raises ClusterRefused."""
    place = options.address
    try:
        described: Described = await head.ask(call_messages.AboutReply(versions.mine()), options.wait)
    except CallError as wrong:
        if wrong.code == grpc.StatusCode.UNAUTHENTICATED:
            raise ClusterRefused(
                f"the controller at {place} refused our credentials: {wrong}. Give --token-file, the cluster's token"
            ) from None
        if wrong.code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
            raise ClusterRefused(await _why_no_answer(options)) from None
        raise ClusterRefused(f"the controller at {place} refused the connection: {wrong}") from None
    if described.platforms == ("timed",):
        raise ClusterRefused(
            f"the devices of the cluster at {place} only take time: a JAX program needs devices that compute"
        )
    return described, session_islands_of(described.cluster, options.devices, options.islands)


class SessionSource(Protocol):
    """The cluster, as those see it who open sessions on it. `islands`: of each session."""

    name: str  # of the first session's client
    islands: tuple[SessionIsland, ...]

    def line(self, name: str) -> tuple[SessionLine, Serves]:
        """A client of core for a new session, and what makes the session's devices of the client's."""

    async def seen(self) -> Mapping[SessionLine, StepTimes]:
        """How often steps of each session ran, and how long they typically took, by their names."""


class RemoteSource:
    """A cluster on its controller's terms."""

    def __init__(
        self, head: Head, described: Described, options: ServedCluster, islands: tuple[SessionIsland, ...]
    ) -> None:
        self._head, self._described, self._options = head, described, options
        self.name, self.islands = options.name, islands
        self._links: set[RemoteLink] = set()

    def line(self, name: str) -> tuple[SessionLine, Serves]:
        options = self._options
        link = RemoteLink(self._head, self._described, name, options.weight, options.priority)
        self._links.add(link)
        link.when_closed(lambda: self._gone(link))
        return link, lambda devices: devices

    def _gone(self, link: RemoteLink) -> None:
        self._links.discard(link)
        self._head.forget(link.codes.difference(*(each.codes for each in self._links)))

    async def seen(self) -> Mapping[SessionLine, StepTimes]:
        numbers = {link.client.number: link for link in self._links if link.client.number}
        if not numbers:
            return {}
        try:
            seen = (await self._head.ask(call_messages.SeenReply(tuple(numbers)), ANSWER)).by_client
        except CallError:  # the controller is busy, or away
            return {}
        return {numbers[number]: times for number, times in seen.items() if number in numbers}


async def _why_no_answer(options: ServedCluster) -> str:
    """gRPC does not say whether nobody listens, or whether the two do not trust each other; a stream of ours does."""
    place = options.address
    try:
        (await dial(place, options.access, "", "")).close()
    except (StreamRefused, OSError) as error:
        if isinstance(error, ConnectionError) and error.errno is None:  # we were connected
            return (
                f"something listens at {place}, and no connection to a controller came about: {error}. --ca, --cert "
                "and --key name certificates of the cluster's CA; leave them out if the cluster has none"
            )
    return (
        f"no controller answers at {place} (waited {options.wait:g} s). Is `python -m seaway controller` running "
        "there, and is its port open to this machine?"
    )


class ClusterSessions:
    """Implements `session_port.Opening`. `more`: foreign functions that programs may call besides the built-in list."""

    def __init__(
        self, source: SessionSource, more: Collection[str], limits: SessionLimits | None = None,
        watch: WatchOf | None = None,
    ) -> None:  # fmt: skip
        self._source, self._watch = source, watch
        self._more, self._limits = frozenset(more), limits or SessionLimits()
        self._gate = ProgramGate(Rules(more=tuple(more)), devices=1, compiles=False)  # children start when needed
        self._names: set[str] = set()
        self._links: set[SessionLine] = set()
        self._programs: dict[SessionLine, ClusterPrograms] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pricing: asyncio.Task[None] | None = None

    def __call__(self, version: Version, link: SessionLink) -> DoorSession:
        session = DoorSession(version, link, self._limits)
        task = asyncio.get_running_loop().create_task(self._open(session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        session.cancel = task.cancel
        return session

    async def _open(self, session: DoorSession) -> None:
        source, name = self._source, self._name()
        link, serves = source.line(name)
        self._links.add(link)
        link.when_closed(lambda: self._gone(link))
        places = Places(source.islands)
        lines = link.callbacks([each.name for each in source.islands])
        programs = ClusterPrograms(link, places, self._more, self._gate, lines)
        self._programs[link] = programs
        watch = None if self._watch is None else self._watch(link)
        devices = ClusterDevices(link, places, programs, link.soon, watch)
        try:
            devices.are(await _platform(programs, places))
        except asyncio.CancelledError:
            log.info("client %r has gone before it had devices", name)
            devices.close()
            raise
        except Exception as error:
            if not isinstance(error, StatusError):
                log.exception("client %r", name)
                text = f"the session could not be opened: {type(error).__name__}: {error}"
                error = StatusError(StatusCode.INTERNAL, text)
            session.fail(error)
            devices.close()
        else:
            log.info("client %r has %d devices", name, len(devices.platform.devices))
            for each in places.opening:
                link.act(lambda client, now, name=each.name: client.release_slice(name, now))  # type: ignore[misc]
            places.opening = ()
            if self._pricing is None:
                self._pricing = asyncio.get_running_loop().create_task(self._price())
            session.begin(serves(devices))

    def _name(self) -> str:
        """The first session that is open has the door's name, others have a number behind it."""
        name, number = self._source.name, 1
        while name in self._names:
            number += 1
            name = f"{self._source.name}-{number}"
        self._names.add(name)
        return name

    def _gone(self, link: SessionLine) -> None:
        self._names.discard(link.name)
        self._links.discard(link)
        self._programs.pop(link, None)

    async def _price(self) -> None:
        """Tells sessions now and then how long their programs take."""
        while True:
            await asyncio.sleep(PRICES)
            if self._programs:
                seen = await self._source.seen()
                for link, programs in list(self._programs.items()):
                    programs.priced(seen.get(link, {}))

    async def end(self) -> None:
        if self._pricing is not None:
            self._pricing.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(link.closed() for link in list(self._links)), return_exceptions=True)
        self._gate.close()


# --- what its devices are -----------------------------------------------------------------------------------


async def _platform(programs: ClusterPrograms, places: Places) -> Platform:
    question = StableHLOCode(b"", b"", "platform")
    answers = [await programs.ask(question, "devices", row) for row in places.rows]
    platform = platform_of([stablehlo_code.platform_about(each) for each in answers], places)
    places.kinds = tuple(platform.devices[row[0]].kind for row in places.rows)
    return platform


def platform_of(abouts: Sequence[stablehlo_code.PlatformAbout], places: Places) -> Platform:
    """The devices of a session, with the numbers that it has for them, by what hosts of each island say of theirs."""
    devices: list[DeviceFacts] = []
    memories: list[MemoryFacts] = []
    about = abouts[0]
    told = [device for each, row in zip(abouts, places.rows, strict=True) for device in each.devices[: len(row)]]
    for number, device in enumerate(told):
        first = len(memories)
        ids = tuple(range(first, first + len(device.memories)))
        memories += [
            MemoryFacts(name, kind, (number,), f"{_numbered(device.text, number)} {kind}", kind)
            for name, kind in zip(ids, device.memories, strict=True)
        ]
        devices.append(
            DeviceFacts(
                number, device.kind, ids[device.default_memory], ids, _numbered(device.repr, number),
                _numbered(device.text, number), {**device.attributes, "slice_index": places.island_of(number)},
            )
        )  # fmt: skip
    flags = flags_of(stablehlo_executables.own_options())
    return Platform(about.name, about.version, about.runtime, tuple(devices), tuple(memories), about.serdes, flags)


def _numbered(text: str, number: int) -> str:
    """`CpuDevice(id=2049)` as the session's own device: its last number is replaced."""
    found = re.match(r"(.*?)(\d+)(\D*)$", text, re.DOTALL)
    return text if found is None else f"{found[1]}{number}{found[3]}"
