"""One host of driver 2: the executor machine, its devices, a stream to the controller, a port for data.

`python -m tests.skeleton.agent NAME CONTROLLER TAPE` ends when its stream or its standard input closes,
or after a minute.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import grpc
import grpc.aio

from . import vocabulary as v
from .devices import Devices
from .minicore import CONTROLLER
from .miniexecutor import Executor
from .wire import FETCH, LOOPBACK, OPTIONS, STREAM, Address, Node, caller, decode_frame, encode, service

LIFETIME_S = 60


class Agent:
    def __init__(self, name: str, controller: str) -> None:
        self.name, self.controller = name, controller
        self.node = Node(Executor(name), self.perform)
        self.devices = Devices(self.node.post, self.node.fail)
        self.outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self.directory: dict[str, str] = {}
        self.fetches: dict[tuple[str, v.Key], asyncio.Future[bytes]] = {}

    def perform(self, command: v.Command) -> None:
        match command:
            case v.Send((to,), message) if to == CONTROLLER:
                self.outbox.put_nowait(encode(message))
            case v.JoinWorld(epoch):
                self.devices.join(command, self.directory[f"coordination/{epoch}"])
            case v.Build():
                self.devices.build(command)
            case v.Launch():
                self.devices.launch(command)
            case v.Drop():
                self.devices.drop(command)
            case v.Deliver(to, buffer):
                self.fetches.pop((to, buffer)).set_result(self.devices.local(buffer))
            case _:
                raise NotImplementedError(command)

    async def fetch(self, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """The data plane: a client asks this host for its shard; the machine says when it may have it."""
        message = decode_frame(request)
        assert isinstance(message, v.Fetch)
        answer = self.fetches.setdefault((caller(context), message.buffer), self.node.loop.create_future())
        self.node.post(v.Received(caller(context), message))
        return await answer

    async def run(self) -> None:
        server = grpc.aio.server(options=OPTIONS)
        fetch = grpc.unary_unary_rpc_method_handler(self.fetch)
        server.add_generic_rpc_handlers([service(FETCH, fetch)])
        port = server.add_insecure_port(LOOPBACK)
        await server.start()
        async with grpc.aio.insecure_channel(self.controller, options=OPTIONS) as channel:
            identity = (("name", self.name), ("address", f"127.0.0.1:{port}"))
            call = channel.stream_stream(STREAM)(metadata=identity)
            self.node.post(v.Connected(CONTROLLER))
            writer = asyncio.create_task(self.write(call))
            reader = asyncio.create_task(self.read(call))
            await asyncio.wait([reader, writer, self.node.failure], return_when=asyncio.FIRST_COMPLETED)
            for done in (self.node.failure, writer):
                if done.done():
                    done.result()

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


async def main(name: str, controller: str, tape: str) -> None:
    agent = Agent(name, controller)
    await asyncio.wait_for(agent.run(), LIFETIME_S)
    Path(tape).write_bytes(encode(agent.node.machine.tape))


def watch_parent() -> None:
    sys.stdin.read()
    os._exit(3)


if __name__ == "__main__":
    threading.Thread(target=watch_parent, daemon=True).start()
    status = 1
    try:
        asyncio.run(main(*sys.argv[1:]))
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)  # a member that exits normally waits for the others
