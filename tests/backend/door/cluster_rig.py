"""A session's devices on a cluster that the test plays: it says what core's client is called, and what it hears.

The client is core's own, connected to nobody: its calls are checked as in earnest, and are read from what it would
send. `say_...` are notes of the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from backend.client import PutOffer
from backend.door.cluster.cluster_devices import ClusterDevices
from backend.door.cluster.cluster_executables import ClusterExecutable, ClusterPrograms
from backend.door.cluster.cluster_layouts import boxes_of
from backend.door.cluster.cluster_programs import UNKNOWN, Places, SessionIsland, executable_program
from backend.door.protocol.ifrt_messages import DTypeProto
from backend.door.protocol.ifrt_shardings import ShardSpec, Tiles
from backend.door.session.session_devices import ArrayType, DeviceFacts, MemoryFacts, Platform, StatusError
from core.client import Client, Limits
from core.model import Value, small
from core.protocol import CONTROLLER, Blame, Calls, CallsMade, ClientMessages, Connected, MessageReceived, Open
from core.protocol import effects as e
from core.protocol import messages as m

F32: int = DTypeProto.KIND_F32
ROWS = Tiles((4, 1), (), (4,), (0,))
HOST_LOST = Blame("host-lost", "host 1 is gone", host=1)


class FakeLink:
    name = "ann"

    def __init__(self, limits: Limits | None = None) -> None:
        self.client = Client("ann", small(1, 4, 1), limits=limits or Limits(pipe=1 << 20))
        self.heard: Callable[[Any], None] = lambda command: None
        self.failed: Callable[[StatusError], None] = lambda fault: None
        self.calls: list[Any] = []  # that have left
        self.offers: dict[int, PutOffer] = {}
        self.contents: dict[int, Any] = {}  # by request: what a get brings
        self.kept: list[bytes] = []
        self.closed = False
        self.then: list[Callable[[], None]] = []
        self.clock = 0
        self.hear(Connected(CONTROLLER))
        self.say(m.Opened(1, 1))

    def act(self, act: Callable[[Client, int], Any]) -> Any:
        found = act(self.client, self.clock)
        self.hear(CallsMade())
        return found

    def hear(self, event: Any) -> None:
        for command in self.client.handle(event, self.clock):
            if isinstance(command, e.Send) and not isinstance(command.message, Open):
                message = command.message
                self.calls += message.calls if isinstance(message, Calls) else (message,)
            self.heard(command)

    def say(self, *notes: Any) -> None:
        self.hear(MessageReceived(CONTROLLER, ClientMessages(notes)))

    def now(self) -> int:
        return self.clock

    def offer(self, buffer: int) -> PutOffer:
        offer = self.offers[buffer] = PutOffer(False)
        return offer

    def taken(self, request: int, value: Value) -> Any:
        return self.contents[request]

    def expected(self, code: str, devices: int) -> int:
        return UNKNOWN

    async def keep(self, blob: bytes) -> None:
        self.kept.append(blob)

    def callbacks(self, islands: Collection[str]) -> None:
        pass

    def soon(self, function: Callable[[], None]) -> None:
        """Nothing: what was dropped goes with the next call."""

    def when_closed(self, then: Callable[[], None]) -> None:
        self.then.append(then)

    def close(self) -> None:
        self.closed = True
        for each in self.then:
            each()

    def since(self) -> list[Any]:
        """The calls that have left since this was asked last."""
        calls, self.calls = self.calls, []
        return calls


class ClusterRig:
    """`watch`: makes what the session tells of its calls. `islands`: with how many devices each; () is any island that
    has `count`."""

    def __init__(
        self, limits: Limits | None = None, count: int = 4, watch: Callable[[Any], Any] | None = None,
        islands: Sequence[SessionIsland] = (),
    ) -> None:  # fmt: skip
        self.link = FakeLink(limits)
        self.places = Places(islands or (SessionIsland("", count),))
        self.places.opening = ()  # it is open
        numbers = range(sum(map(len, self.places.rows)))
        platform = Platform(
            "cpu", "1", "fake", tuple(DeviceFacts(n, "cpu", n, (n,), f"d{n}", f"d{n}") for n in numbers),
            tuple(MemoryFacts(n, "device", (n,), "m", "m") for n in numbers), 6,
        )  # fmt: skip
        self.soon: list[Callable[[], None]] = []
        self.programs = ClusterPrograms(self.link, self.places, ())
        told = None if watch is None else watch(self.link)
        self.devices = ClusterDevices(self.link, self.places, self.programs, self.soon.append, told)
        self.devices.are(platform)
        self.link.since()

    # --- what a session calls ------------------------------------------------------------------------------

    def put(self, contents: Any, devices: tuple[int, ...] = (0,), tiles: Tiles | None = None) -> Any:
        whole = np.asarray(contents, np.float32)
        array_type = ArrayType(F32, whole.shape, ShardSpec(devices, tiles or Tiles()))
        return self.devices.put(array_type, [whole[box] for box in boxes_of(array_type)])

    def large(self, fill: float = 1, **more: Any) -> Any:
        return self.put(np.full((128, 64), fill), **more)

    def executable(
        self, parameters: Sequence[Any] = ((128, 64),), results: Sequence[Any] = ((128, 64),),
        donated: Sequence[int] = (), devices: tuple[int, ...] = (0,), tiles: Tiles | None = None, step: str = "",
    ) -> ClusterExecutable:  # fmt: skip
        """As if it had been compiled."""
        spec = ShardSpec(devices, tiles or Tiles())
        given, made = ([ArrayType(F32, tuple(shape), spec) for shape in each] for each in (parameters, results))
        ir, keeping = (
            executable_program(self.places, "step", devices, "c0de", 0, given, made, each, step=step)
            for each in (donated, ())
        )
        found = ClusterExecutable(devices, given, tuple(made), donated, ir, keeping)
        registered = self.link.act(lambda client, now: client.register(found.ir, now))
        found.giving = registered
        self.link.calls.pop()
        self.programs._executables.add(found)
        return found

    def run(self, executable: ClusterExecutable, *arguments: Any, keep: Sequence[int] = ()) -> Any:
        return self.devices.execute(executable, arguments, keep, 0)

    def told(self, *refs: Any) -> Told:
        """What one hears who waits for these."""
        told = Told()
        self.devices.when_ready(refs, told)
        return told

    def fetched(self, ref: Any) -> Told:
        told = Told()
        self.devices.fetch(ref, told)
        return told

    # --- what comes of it ----------------------------------------------------------------------------------

    def calls(self) -> list[Any]:
        return self.link.since()

    def later(self) -> list[Any]:
        """The calls that leave when the loop has come round."""
        soon, self.soon[:] = list(self.soon), []
        for each in soon:
            each()
        return self.link.since()

    def ready(self, *buffers: int, blame: Blame | None = None) -> None:
        self.link.say(m.ContentsReady(buffers, blame))

    def brings(self, request: int, contents: Any, blame: Blame | None = None) -> None:
        """A get ends."""
        if blame is not None:
            self.link.say(m.Refused("get", request, blame))
            return
        self.link.contents[request] = np.asarray(contents, np.float32)
        self.link.heard(e.Received(request, None, request))


class Told(list[Any]):
    """What a wait was told: nothing, or one thing."""

    def __call__(self, what: Any) -> None:
        self.append(what)
