"""One host of driver 2: core's host machine, its JAX devices, its streams.

`python -m tests.skeleton.agent HOST CONTROLLER LOG` ends when it is dismissed, when its standard input
closes, or after a minute.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import grpc.aio

from core import effects as e
from core.dataplane import Chunk
from core.messages import Blame

from .devices import Devices
from .ends import host_end, new_host
from .wire import CONTROLLER, FIND, OPTIONS, Node, world_name
from .work import CLUSTER

LIFETIME_S = 60


class Agent:
    def __init__(self, host: int, controller: str, log: Path) -> None:
        self.host, self.controller = new_host(host), controller
        self.log = log.open("wb", buffering=0)
        endpoint = host_end(self.host, self.log.write)
        self.node = Node(endpoint, self.perform, lambda peer: host, self.contents)
        self.node.directory[CONTROLLER] = controller
        self.devices = Devices(host, CLUSTER, self.node.post, self.fail)
        self.sources: dict[int, int] = {}  # transfer -> buffer
        self.stopped = asyncio.Event()

    def fail(self, error: BaseException) -> None:
        self.node.loop.call_soon_threadsafe(self.node.fail, error)

    def perform(self, effect: e.Effect) -> None:
        match effect:
            case e.Reform(epoch):
                island = CLUSTER.island_of_host(self.host.host).index
                self.devices.reform(effect, self.node.directory[world_name(island, epoch)])
            case e.CompileCode():
                self.node.task(self.compile(effect))
            case e.Launch(run=run):
                plan = self.host.executor.plan_of(run)
                assert plan is not None
                self.devices.launch(effect, plan)
            case e.MakeBuffer():
                self.devices.make(effect)
            case e.FreeBuffer(buffer):
                self.devices.free(buffer)
            case e.OpenSend(transfer, buffer):
                self.sources[transfer] = buffer
            case e.Sent(transfer):
                del self.sources[transfer]
            case e.Abandon(seqs):
                self.devices.abandon(seqs)
            case e.Stop():
                self.stopped.set()
            case e.DropTransfer() | e.Prepare() | e.Tell():
                pass
            case _:
                raise NotImplementedError(effect)

    def contents(self, chunk: Chunk) -> bytes:
        """A chunk may be sent again when its receiver has all, and its source is gone: nobody reads it."""
        buffer = self.sources.get(chunk.transfer)
        return b"" if buffer is None else self.devices.read(buffer, chunk)

    async def compile(self, command: e.CompileCode) -> None:
        plan = self.host.executor.plan(command.plan)
        try:
            assert plan is not None, "the plan is forgotten"
            async with grpc.aio.insecure_channel(self.controller, options=OPTIONS) as channel:
                blob = await channel.unary_unary(FIND)(plan.codes[command.code].code.encode(), timeout=10)
            self.devices.compile(command, plan, blob)
        except Exception as error:
            self.node.feed(e.CodeReady(command.plan, command.code, Blame("user", f"no code: {error}")))

    async def run(self) -> None:
        await self.node.start()
        await self.node.unless_it_fails(self.stopped.wait())


async def main(host: str, controller: str, log: str) -> None:
    await asyncio.wait_for(Agent(int(host), controller, Path(log)).run(), LIFETIME_S)


def watch_parent() -> None:
    sys.stdin.read()
    os._exit(0)


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
