"""Measures gRPC messages between two processes: latency, and CPU time by message and by byte.

`python -m seaway.tools.calibrating.wire` is the other process, which answers each message with a short one. CPU time of
either process is subtracted from a round's time to get the latency, since the model charges it as the messages' cost.
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
from backend.process_title import show_as

from ...sessions.connected import Loop
from .fitting import FittedCost, FittedLine, half_range, line, middle

MODULE = "seaway.tools.calibrating.wire"
SERVICE = "calibrating.Wire"
SIZES = (64, 16 << 10, 64 << 10, 256 << 10)  # bytes of a message
ROUNDS = 60  # of a batch, of the smallest
BATCHES = 12


class Round(NamedTuple):
    """A message there and a short one back: nanoseconds by the clock, and of each process's CPU. span: when, in
    monotonic nanoseconds."""

    nbytes: int
    wall: float
    sender: float
    receiver: float
    span: tuple[int, int] = (0, 0)

    def scaled(self, by: float) -> Round:
        return self._replace(wall=self.wall * by, sender=self.sender * by, receiver=self.receiver * by)


class WireCosts(NamedTuple):
    """latency: nanoseconds one way; 0 if it is smaller than `doubt`, its uncertainty. message: CPU nanoseconds of both
    ends, one way. send, receive: CPU nanoseconds by bytes."""

    latency: FittedCost
    doubt: float
    message: FittedCost
    send: FittedLine
    receive: FittedLine


def measured(batches: int = BATCHES, rounds: int = ROUNDS) -> list[Round]:
    with TemporaryDirectory(prefix="seaway-") as folder:
        children = Children(Path(folder))
        loop = Loop("calibrating")
        try:
            child = children.start("wire", MODULE, [], {"PYTHONWARNINGS": "ignore"}, stdout=subprocess.PIPE)
            assert child.process.stdout is not None
            address = child.process.stdout.readline().decode().strip()
            if not address:
                raise RuntimeError(f"the process at the other end of the wire ended: {child.tail()}")
            return loop.do(_rounds(address, child.pid, batches, rounds))
        finally:
            children.end_all()
            loop.close()


def wire_of(found: Sequence[Round]) -> WireCosts:
    short = [each for each in found if each.nbytes == min(SIZES)]
    rests = [(each.wall - each.sender - each.receiver) / 2 for each in short]
    doubt = half_range(rests)
    left = middle(rests)
    return WireCosts(
        left if left.value > doubt else FittedCost(0.0, 0.0),
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
    """Means over a batch. CPU time is that of the whole batch, since part of it is spent after an answer."""
    content = bytes(nbytes)
    wall, mine, theirs, first = 0, cpu_of(os.getpid()), cpu_of(pid), time.monotonic_ns()
    for _ in range(rounds):
        begun = time.monotonic_ns()
        await call.write(content)
        if await call.read() is grpc.aio.EOF:
            raise RuntimeError("the process at the other end of the wire closed the stream")
        wall += time.monotonic_ns() - begun
    mine, theirs = cpu_of(os.getpid()) - mine, cpu_of(pid) - theirs
    return Round(nbytes, wall / rounds, mine / rounds, theirs / rounds, (first, time.monotonic_ns()))


def pauses(times: int) -> dict[str, FittedCost]:
    """How long the backend's pauses between messages really last, since timers are coarse."""
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
    show_as("calibrate: wire")
    asyncio.run(serve(lambda text: print(text, flush=True)))


if __name__ == "__main__":
    main()
