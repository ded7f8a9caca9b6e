"""Throw-away driver 2: gRPC and real JAX. Controller and client in this process, each host an agent's."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec

from . import vocabulary as v
from .client import Client, Workload
from .minicore import CONTROLLER, Controller
from .tape import Tape
from .wire import FETCH, LOOPBACK, OPTIONS, STREAM, Address, Node, caller, decode_frame, encode, service

ROOT = Path(__file__).parents[2]
START_S, RUN_S, END_S = 20, 30, 5
CLIENT = "client/0"


@dataclass
class GrpcResult:
    tapes: dict[str, Tape]
    shards: dict[tuple[v.Key, str], bytes]
    reports: list[v.ReportLate]
    finish: v.Finish
    exits: dict[str, int | None]


class Children:
    """The processes we started. Leaving ends every one of them, whatever happened."""

    def __init__(self) -> None:
        self.running: dict[str, Process] = {}

    async def start(self, name: str, module: str, *arguments: str) -> Process:
        env = {k: w for k, w in os.environ.items() if not k.lower().endswith("_proxy")}
        env |= {"JAX_PLATFORMS": "cpu", "NPROC": "8"}
        env["XLA_FLAGS"] = "--xla_force_host_platform_device_count=1 --xla_cpu_collective_timeout_seconds=10"
        command = [sys.executable, "-m", f"{__package__}.{module}", *arguments]
        child = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env, cwd=ROOT
        )
        self.running[name] = child
        return child

    async def __aenter__(self) -> Children:
        return self

    async def __aexit__(self, *_: object) -> None:
        for child in self.running.values():
            if child.returncode is None:
                child.kill()
        await asyncio.wait_for(asyncio.gather(*(c.wait() for c in self.running.values())), END_S)


class ControllerServer:
    """The controller machine behind a gRPC server: a stream a peer, addresses, the coordination process."""

    def __init__(self, hosts: tuple[str, ...], bound_ns: int, children: Children, kill: str) -> None:
        self.node = Node(Controller(hosts, bound_ns), self.perform)
        self.children, self.kill = children, kill
        self.outboxes: dict[str, asyncio.Queue[bytes]] = {}
        self.directory: dict[str, str] = {}
        self.reports: list[v.ReportLate] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.server = grpc.aio.server(options=OPTIONS)

    async def start(self) -> str:
        handler = grpc.stream_stream_rpc_method_handler(self.stream)
        self.server.add_generic_rpc_handlers([service(STREAM, handler)])
        port = self.server.add_insecure_port(LOOPBACK)
        await self.server.start()
        return f"127.0.0.1:{port}"

    def perform(self, command: v.Command) -> None:
        match command:
            case v.Send(to, message):
                data = encode(message)
                for peer in to:
                    if peer in self.outboxes:  # a peer just lost: its Disconnected is on the way
                        self.outboxes[peer].put_nowait(data)
            case v.StartCoordination():
                task = asyncio.create_task(self.coordinate(command))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            case v.ReportLate():
                self.reports.append(command)
            case _:
                raise NotImplementedError(command)

    async def coordinate(self, command: v.StartCoordination) -> None:
        if self.kill:
            self.children.running[self.kill].kill()
        name = f"coordination/{command.epoch}"
        child = await self.children.start(name, "coordination", str(len(command.members)))
        assert child.stdout
        port = int(await asyncio.wait_for(child.stdout.readline(), START_S))
        self.announce(name, f"127.0.0.1:{port}")
        self.node.post(v.CoordinationUp(command.epoch))

    def announce(self, name: str, address: str) -> None:
        self.directory[name] = address
        for outbox in self.outboxes.values():
            outbox.put_nowait(encode(Address(name, address)))

    async def stream(self, _: object, context: grpc.aio.ServicerContext) -> None:
        peer = caller(context)
        outbox = self.outboxes[peer] = asyncio.Queue()
        for name, address in self.directory.items():
            outbox.put_nowait(encode(Address(name, address)))
        if address := caller(context, "address"):
            self.announce(peer, address)
        self.node.post(v.Connected(peer))
        writer = asyncio.create_task(self.write(context, outbox))
        try:
            while (data := await context.read()) is not grpc.aio.EOF:
                frame = decode_frame(data)
                if isinstance(frame, Address):
                    break
                self.node.post(v.Received(peer, frame))
        except (msgspec.DecodeError, grpc.aio.AbortError, asyncio.CancelledError):
            pass  # a peer that says what we cannot read is closed, as one that went away
        finally:
            writer.cancel()
            del self.outboxes[peer]
            self.node.post(v.Disconnected(peer))

    @staticmethod
    async def write(context: grpc.aio.ServicerContext, outbox: asyncio.Queue[bytes]) -> None:
        while True:
            await context.write(await outbox.get())


class ClientDriver:
    """The client machine on its own channel; pulls results from the hosts."""

    def __init__(self, name: str, work: Workload, controller: str) -> None:
        self.name, self.controller = name, controller
        self.node = Node(Client(name, work), self.perform)
        self.finished: asyncio.Future[v.Finish] = self.node.loop.create_future()
        self.outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self.directory: dict[str, str] = {}
        self.shards: dict[tuple[v.Key, str], bytes] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def perform(self, command: v.Command) -> None:
        match command:
            case v.Send((to,), message) if to == CONTROLLER:
                self.outbox.put_nowait(encode(message))
            case v.Pull():
                self.task(self.pull(command))
            case v.Finish():
                self.finished.set_result(command)
            case _:
                raise NotImplementedError(command)

    def task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def pull(self, command: v.Pull) -> None:
        async with grpc.aio.insecure_channel(self.directory[command.host], options=OPTIONS) as channel:
            request = encode(v.Fetch(command.buffer))
            data = await channel.unary_unary(FETCH)(request, metadata=(("name", self.name),), timeout=RUN_S)
        self.shards[command.buffer, command.host] = data
        self.node.post(v.Pulled(command.buffer, command.host))

    async def run(self) -> v.Finish:
        async with grpc.aio.insecure_channel(self.controller, options=OPTIONS) as channel:
            call = channel.stream_stream(STREAM)(metadata=(("name", self.name),))
            self.node.post(v.Connected(CONTROLLER))
            writer = asyncio.create_task(self.write(call))
            reader = asyncio.create_task(self.read(call))
            ends: list[asyncio.Future[Any]] = [self.finished, self.node.failure, writer, reader]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not self.finished.done():
                raise ConnectionError("the client's stream ended before its runs")
            while not self.outbox.empty():
                await asyncio.sleep(0.01)
            await call.done_writing()
            return self.finished.result()

    async def write(self, call: grpc.aio.StreamStreamCall) -> None:
        while True:
            await call.write(await self.outbox.get())

    async def read(self, call: grpc.aio.StreamStreamCall) -> None:
        while (data := await call.read()) is not grpc.aio.EOF:
            frame = decode_frame(data)
            if isinstance(frame, Address):
                self.directory[frame.name] = frame.address
            else:
                self.node.post(v.Received(CONTROLLER, frame))


async def _run(work: Workload, hosts: tuple[str, ...], bound_ns: int, kill: str) -> GrpcResult:
    with tempfile.TemporaryDirectory() as folder:
        async with Children() as children:
            controller = ControllerServer(hosts, bound_ns, children, kill)
            address = await controller.start()
            tapes = {host: Path(folder) / str(i) for i, host in enumerate(hosts)}
            for host, tape in tapes.items():
                await children.start(host, "agent", host, address, str(tape))
            client = ClientDriver(CLIENT, work, address)
            finish = await asyncio.wait_for(client.run(), RUN_S)
            await controller.server.stop(grace=0.5)
            agents = [children.running[h].wait() for h in hosts]
            await asyncio.wait_for(asyncio.gather(*agents), END_S)
        decode = msgspec.msgpack.Decoder(Tape).decode
        found = {h: decode(t.read_bytes()) for h, t in tapes.items() if t.exists()}
        found |= {CONTROLLER: controller.node.machine.tape, CLIENT: client.node.machine.tape}
        exits = {name: child.returncode for name, child in children.running.items()}
        return GrpcResult(found, client.shards, controller.reports, finish, exits)


def run(work: Workload, hosts: tuple[str, ...], bound_ns: int, kill: str = "") -> GrpcResult:
    return asyncio.run(_run(work, hosts, bound_ns, kill))
