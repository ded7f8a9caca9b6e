"""Throw-away driver 2: gRPC and real JAX. Controller and user in this process, each host an agent's."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from core import effects as e
from core import peers, spans
from core.messages import Blame

from .ends import ONE_CLIENT, Result, controller_end, host_name, idle, new_controller, user_end
from .wire import CONTROLLER, FIND, KEEP, OPTIONS, Node, service, world_name
from .work import CLUSTER, Rounds, User, hash_of

ROOT = Path(__file__).parents[2]
START_S, RUN_S, END_S = 20, 30, 5


@dataclass
class GrpcResult(Result):
    exits: dict[str, int | None]


class Children:
    """The processes we started. Leaving ends every one of them, whatever happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, Process] = {}

    async def start(self, name: str, module: str, *arguments: str) -> Process:
        env = {k: w for k, w in os.environ.items() if not k.lower().endswith("_proxy")}
        env |= {"JAX_PLATFORMS": "cpu", "NPROC": "8"}
        env["XLA_FLAGS"] = "--xla_force_host_platform_device_count=1 --xla_cpu_collective_timeout_seconds=10"
        command = [sys.executable, "-m", f"{__package__}.{module}", *arguments]
        with self.errors(name).open("wb") as errors:
            child = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=errors, env=env, cwd=ROOT
            )
        self.running[name] = child
        return child

    def file(self, name: str, kind: str) -> Path:
        return self.folder / f"{name.replace('/', '-')}.{kind}"

    def errors(self, name: str) -> Path:
        return self.file(name, "err")

    async def end(self) -> None:
        """As they should: when their standard input closes."""
        for child in self.running.values():
            assert child.stdin
            child.stdin.close()
        await asyncio.wait_for(asyncio.gather(*(c.wait() for c in self.running.values())), END_S)

    async def __aenter__(self) -> Children:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        for child in self.running.values():
            if child.returncode is None:
                child.kill()
        await asyncio.wait_for(asyncio.gather(*(c.wait() for c in self.running.values())), END_S)
        if error:
            for name in self.running:
                error.add_note(f"{name}: ...{self.errors(name).read_text(errors='replace')[-2000:]}")


class ControllerDriver:
    def __init__(self, children: Children) -> None:
        self.children = children
        self.controller = new_controller()
        endpoint, self.recorder = controller_end(self.controller)
        self.node = Node(endpoint, self.perform, lambda peer: peers.CONTROLLER, met=self.met)
        self.blobs: dict[str, bytes] = {}
        self.told: list[str] = []
        for path, act in ((KEEP, self.keep), (FIND, self.find)):
            handler = grpc.unary_unary_rpc_method_handler(act)
            self.node.server.add_generic_rpc_handlers([service(path, handler)])

    def met(self, peer: int, address: str) -> None:
        if peer < CLUSTER.hosts:
            self.node.announce(host_name(peer), address)

    def perform(self, effect: e.Effect) -> None:
        match effect:
            case e.FormWorld():
                self.node.task(self.form(effect))
            case e.Tell(text):
                self.told.append(text)
            case _:
                raise NotImplementedError(effect)

    async def form(self, command: e.FormWorld) -> None:
        """An old epoch's service stays until the end: its members may still be leaving it."""
        island, epoch = command.island, command.epoch
        try:
            name = world_name(island, epoch)
            child = await self.children.start(name, "coordination", str(spans.count(command.members)))
            assert child.stdout
            port = int(await asyncio.wait_for(child.stdout.readline(), START_S))
        except Exception as error:
            self.node.feed(e.WorldFailed(island, epoch, Blame("world", str(error))))
            return
        self.node.announce(name, f"127.0.0.1:{port}")
        self.node.feed(e.WorldUp(island, epoch))

    async def keep(self, blob: bytes, _: object) -> bytes:
        self.blobs[hash_of(blob)] = blob
        return b""

    async def find(self, name: bytes, _: object) -> bytes:
        return self.blobs[name.decode()]


class UserDriver:
    def __init__(self, user: User, controller: str) -> None:
        self.user, self.controller = user, controller
        self.node = Node(user_end(user), self.perform, self.me)
        self.node.directory[CONTROLLER] = controller
        self._changed = asyncio.Event()

    def me(self, peer: int) -> int:
        return ONE_CLIENT if peer == peers.CONTROLLER else peers.client(self.user.client.number)

    def perform(self, effect: e.Effect) -> None:
        self.user.saw(effect, self.node.cargo)
        self._changed.set()

    async def leave_code(self) -> None:
        """Beside the control messages, and before them."""
        async with grpc.aio.insecure_channel(self.controller, options=OPTIONS) as channel:
            await channel.unary_unary(KEEP)(self.user.blob, timeout=START_S, wait_for_ready=True)

    async def call(self, call: Callable[[], None], over: Callable[[], bool]) -> None:
        call()
        self.node.feed(e.Called())
        while not over():
            self._changed.clear()
            await self.node.unless_it_fails(self._changed.wait())


async def _drive(rounds: Rounds, blob: bytes, kill: int, children: Children) -> Result:
    controller = ControllerDriver(children)
    await controller.node.start()
    hosts = [host_name(host) for host in range(CLUSTER.hosts)]
    logs = {name: children.file(name, "log") for name in hosts}
    for number, name in enumerate(hosts):
        await children.start(name, "agent", str(number), controller.node.address, str(logs[name]))
    user = User(blob)
    driver = UserDriver(user, controller.node.address)
    try:
        await driver.leave_code()
        await driver.node.start()
        for number, length in enumerate(rounds):
            if number == 1 and kill >= 0:
                children.running[host_name(kill)].kill()
            await driver.call(lambda n=length: user.call(n, driver.node.now()), lambda: user.over)  # type: ignore[misc]
            while not idle(controller.controller):
                await asyncio.sleep(0.01)
        await driver.call(lambda: user.client.close(driver.node.now()), lambda: user.client.state == "closed")
        await children.end()
    finally:
        await driver.node.stop()
        await controller.node.stop()
    found = {name: log.read_bytes() for name, log in logs.items()}
    found[CONTROLLER] = controller.recorder.log()
    return Result(controller.controller, user, found, controller.told)


async def _run(rounds: Rounds, blob: bytes, kill: int) -> GrpcResult:
    with tempfile.TemporaryDirectory() as folder:
        async with Children(Path(folder)) as children:
            result = await asyncio.wait_for(_drive(rounds, blob, kill, children), RUN_S)
    exits = {name: child.returncode for name, child in children.running.items()}
    return GrpcResult(**vars(result), exits=exits)


def run(rounds: Rounds, blob: bytes, kill: int = -1) -> GrpcResult:
    """`kill`: this host, behind the first round."""
    return asyncio.run(_run(rounds, blob, kill))
