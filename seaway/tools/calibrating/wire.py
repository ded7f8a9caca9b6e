"""Two processes, one gRPC stream and nothing else: how long it takes from written to somebody waking up, and a byte.

`python -m seaway.tools.calibrating.wire` is the other process: it answers each message with a short one. Of the time of
a round, what was CPU of either process is not latency: the model charges that as messages' cost.
Neighbours: `measuring`; `transfers`, which is about contents.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import grpc
import grpc.aio

from backend.admin import Children, cpu_of, end_with_parent
from backend.auth import Access
from backend.node import GATHER, GATHER_MOST, new_server

from ...sessions.connected import Loop
from .fitting import Cost, Line, half_range, line, middle

MODULE = "seaway.tools.calibrating.wire"
SERVICE = "calibrating.Wire"
SIZES = (64, 16 << 10, 64 << 10, 256 << 10)  # bytes of a message
ROUNDS = 60  # of a batch, of the smallest
BATCHES = 12


class Round(NamedTuple):
    """Of one message there and a short one back, nanoseconds: of the clock, and of either's CPU. span: monotonic
    nanoseconds."""

    nbytes: int
    wall: float
    sender: float
    receiver: float
    span: tuple[int, int] = (0, 0)

    def scaled(self, by: float) -> Round:
        return self._replace(wall=self.wall * by, sender=self.sender * by, receiver=self.receiver * by)


class Wire(NamedTuple):
    """latency: nanoseconds one way, and how far up and down that goes; none, where that is further than down to none.
    message: of CPU of both ends, one way. send, receive: of CPU, by byte."""

    latency: Cost
    doubt: float
    message: Cost
    send: Line
    receive: Line


def measured(batches: int = BATCHES, rounds: int = ROUNDS) -> list[Round]:
    with TemporaryDirectory(prefix="seaway-") as folder:
        children = Children(Path(folder))
        loop = Loop("calibrating")
        try:
            child = children.start("wire", MODULE, [], {"PYTHONWARNINGS": "ignore"}, stdout=subprocess.PIPE)
            assert child.process.stdout is not None
            address = child.process.stdout.readline().decode().strip()
            if not address:
                raise RuntimeError(f"the other end of the wire ended: {child.tail()}")
            return loop.do(_rounds(address, child.pid, batches, rounds))
        finally:
            children.end_all()
            loop.close()


def wire_of(found: Sequence[Round]) -> Wire:
    short = [each for each in found if each.nbytes == min(SIZES)]
    rests = [(each.wall - each.sender - each.receiver) / 2 for each in short]
    doubt = half_range(rests)
    left = middle(rests)
    return Wire(
        left if left.value > doubt else Cost(0.0, 0.0),
        doubt,
        middle([(each.sender + each.receiver) / 2 for each in short]),
        line([(each.nbytes, each.sender) for each in found]),
        line([(each.nbytes, each.receiver) for each in found]),
    )


async def _rounds(address: str, pid: int, batches: int, rounds: int) -> list[Round]:
    channel = Access().channel(address)
    call = channel.stream_stream(f"/{SERVICE}/Answer")()
    try:
        for nbytes in SIZES:
            await _batch(call, pid, nbytes, 1)
        return [await _batch(call, pid, nbytes, rounds if nbytes == min(SIZES) else max(1, rounds // 4))
                for _ in range(batches) for nbytes in SIZES]  # fmt: skip
    finally:
        call.cancel()
        await channel.close()


async def _batch(call: Any, pid: int, nbytes: int, rounds: int) -> Round:
    """Means: of the clock while a round is under way, of CPU in all, for some of it comes behind the answer."""
    content = bytes(nbytes)
    wall, mine, theirs, first = 0, cpu_of(os.getpid()), cpu_of(pid), time.monotonic_ns()
    for _ in range(rounds):
        begun = time.monotonic_ns()
        await call.write(content)
        if await call.read() is grpc.aio.EOF:
            raise RuntimeError("the other end of the wire hung up")
        wall += time.monotonic_ns() - begun
    mine, theirs = cpu_of(os.getpid()) - mine, cpu_of(pid) - theirs
    return Round(nbytes, wall / rounds, mine / rounds, theirs / rounds, (first, time.monotonic_ns()))


def pauses(times: int) -> dict[str, Cost]:
    """How long the backend's pauses between messages really last, in its loop: timers have their grain."""
    loop = Loop("calibrating")
    try:
        return {
            "gather": middle([loop.do(_slept(GATHER)) for _ in range(times)]),
            "gather_most": middle([loop.do(_slept(GATHER_MOST)) for _ in range(times)]),
        }
    finally:
        loop.close()


async def _slept(seconds: float) -> float:
    begun = time.monotonic_ns()
    await asyncio.sleep(seconds)
    return float(time.monotonic_ns() - begun)


async def _answers(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for _ in requests:
        yield b"k"


async def serve(say: Callable[[str], None]) -> None:
    server = new_server()
    handler = grpc.stream_stream_rpc_method_handler(_answers)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"Answer": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    say(f"127.0.0.1:{port}")
    await server.wait_for_termination()


def main() -> None:
    end_with_parent()
    asyncio.run(serve(lambda text: print(text, flush=True)))


if __name__ == "__main__":
    main()
