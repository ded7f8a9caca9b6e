"""A cluster in one process and loop: the controller's server, hosts of timed devices, clients; over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from backend.agent.agent import Agent
from backend.auth.access import Access
from backend.client.remote import Head, Remote
from backend.devices.timed import TimedDevices
from backend.server.server import Server
from backend.wire import framing
from backend.wire.framing import Answered, Opening
from core.client.client import Client
from core.client.client_limits import Blocked, Submitted
from core.model.program import Arg, Computation, Node, Out, Program, Sharding, SliceSpec, Value
from core.model.topology import small
from core.protocol import Blame
from core.protocol import effects as e

S = 1_000_000_000
PATIENCE = 60.0  # seconds, after which a wait has failed
COST = 1_000_000


class User:
    """A client whose results the test awaits."""

    def __init__(self, server: Server, name: str, access: Access | None = None, weight: int = 1) -> None:
        self.failures: list[BaseException] = []
        self.heard: list[e.Command] = []
        self.head = Head(server.address, access or server.access)
        self.remote = Remote(
            Client(name, server.cluster, weight=weight),
            server.lease,
            self.head,
            heard=self.heard.append,
            failed=self.failures.append,
        )
        self.remote.node.start()

    def call(self, act: Callable[[Client, int], Any]) -> Any:
        answer = self.remote.act(act)
        assert not isinstance(answer, Blocked), answer
        return answer

    def submit(self, program: int, *args: int | bytes) -> Submitted:
        found: Submitted = self.call(lambda client, now: client.submit(program, args, now))
        return found

    async def until(self, over: Callable[[e.Command], bool]) -> Any:
        return await wait_until(lambda: next(filter(over, self.heard), None))

    async def ended(self, run: int) -> e.RunEnded:
        found: e.RunEnded = await self.until(lambda effect: isinstance(effect, e.RunEnded) and effect.run == run)
        return found

    async def blamed(self, run: int) -> Blame:
        """Why a run failed."""
        blame = (await self.ended(run)).blame
        assert blame is not None
        return blame

    async def stop(self) -> None:
        await self.remote.node.stop()
        await self.head.close()


async def wait_until(found: Callable[[], Any]) -> Any:
    """Wait until `found()` is true, and return its value."""
    async with asyncio.timeout(PATIENCE):
        while not (answer := found()):
            await asyncio.sleep(0.005)
    return answer


async def greeted(address: str, opening: Opening) -> Answered:
    """The answer to an opening, which `dial` would not send like that."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(framing.MAGIC + framing.framed(opening))
        kind, size, _ = framing.HEAD.unpack(await reader.readexactly(framing.HEAD.size))
        answer = framing.read(kind, await reader.readexactly(size))
    finally:
        writer.close()
    assert isinstance(answer, Answered)
    return answer


class Cluster:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.agents: dict[int, Agent] = {}
        self.users: list[User] = []
        self.over: dict[int, str] = {}  # hosts that have ended by themselves, and the reasons

    async def agent(self, host: int = -1, **options: Any) -> Agent:
        devices = TimedDevices(options.pop("devices", self.server.cluster.islands[0].devices_per_host))
        ended: list[str] = []
        agent = Agent(
            self.server.address, devices, name=options.pop("name", f"host-{host}"), host=host,
            access=options.pop("access", self.server.access), **options,
            over=lambda reason, for_good: ended.append(reason),
        )  # fmt: skip
        number = await agent.start()
        self.agents[number] = agent
        return agent

    def devices(self, host: int) -> TimedDevices:
        found = self.agents[host].devices
        assert isinstance(found, TimedDevices)
        return found

    def user(self, name: str = "ann", **options: Any) -> User:
        user = User(self.server, name, **options)
        self.users.append(user)
        return user

    async def ready(self) -> None:
        await wait_until(self.server.ready)

    async def stop(self) -> None:
        for user in self.users:
            await user.stop()
        for agent in self.agents.values():
            await agent.stop()
        await self.server.stop()


@asynccontextmanager
async def cluster(
    folder: Path, hosts: int = 2, devices_per_host: int = 2, islands: int = 1, agents: bool = True, **options: Any
) -> AsyncIterator[Cluster]:
    server = Server(small(hosts, devices_per_host, islands), folder=folder, **options)
    await server.start()
    found = Cluster(server)
    try:
        if agents:
            for host in range(hosts * islands):
                await found.agent(host)
            await found.ready()
        yield found
    finally:
        await found.stop()


def chain(length: int, devices: int, size: int = 8, island: str = "", cost: int = COST) -> Program:
    """A program in which each step reads the output of the one before."""
    value = Value((size,), "float32", 0, Sharding(((0,),)))
    return Program(
        name="chain",
        slices=(SliceSpec("all", devices, island=island),),
        computations=(Computation("step", "step", cost),),
        args=(value,),
        nodes=tuple(
            Node("step", 0, 0, (Arg(0) if at == 0 else Out(at - 1),), (value,), (value,)) for at in range(length)
        ),
        results=(Out(length - 1),),
    )
