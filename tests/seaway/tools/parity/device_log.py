"""Records what a host's devices were told, and which contents it sent, as lines in a file.

    core --commands--> agent --launch, free--> devices      one line for each call of the devices' own layer
                         `--chunks--> node                   one line for each chunk handed to a connection

`forced` compares them with what `edge` computes from the controller's commands that they must be. Where
devices have an enqueuing thread (`pjrt`), the line is written in that thread. Lines are JSON, one file for each
host; a process that is killed has written all it did. Neighbour: `recorded_agent`.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from backend.agent.agent import Agent
from backend.streams import Load
from backend.wire import Contents
from core.link import Frame, Write
from core.model import Plan
from core.protocol import Chunk
from core.protocol import effects as e

LAUNCH, FREE, CHUNK, BEGUN = "launch", "free", "chunk", "begun"
RECENT = 256  # frames


class DeviceLog:
    """`attach` it before the agent starts. The first line opens the file, when the host's number is known."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._file: Any = None
        self._agent: Agent | None = None
        self._over = False
        self._written: deque[Frame] = deque(maxlen=RECENT)

    def attach(self, agent: Agent) -> None:
        self._agent = agent
        devices: Any = agent.devices
        line = getattr(devices, "_line", None)  # the enqueuing thread, if the devices have one
        if line is None:
            _wrap(devices, "launch", self._launched)
            _wrap(devices, "free", self._freed)
        else:
            _wrap(devices._launcher, "launch", self._launched)
            _wrap(devices, "free", lambda first, count: line.do(self._freed, first, count))
        start, stop, contents = agent.start, agent.stop, agent._contents

        async def started() -> int:
            number = await start()
            with agent.node.lock:
                _wrap(agent.node, "_write", self._wrote)
            return number

        async def stopped() -> None:
            await stop()
            self.close()

        def to_itself(chunk: Chunk) -> Load | Contents:
            if chunk.receiver == chunk.sender:
                self._chunk(chunk, -1, False)
            return contents(chunk)

        agent.start, agent.stop = started, stopped  # type: ignore[method-assign]
        agent._contents = to_itself  # type: ignore[method-assign]

    def close(self) -> None:
        with self._lock:
            self._over = True
            if self._file is not None:
                self._file.close()

    def _launched(self, command: e.Launch, plan: Plan) -> None:
        self._say(LAUNCH, command.seq, command.run, command.step)

    def _freed(self, first: int, count: int) -> None:
        for buffer in range(first, first + count):
            self._say(FREE, buffer)

    def _wrote(self, write: Write) -> None:
        """Records a chunk that is written. After a lost connection or a gap, a link sends a message again as a new
        frame with its old number, which is right. A frame twice, or a chunk under two numbers, is an error."""
        packet = write.packet
        if isinstance(packet, Frame) and isinstance(packet.message, Chunk):
            repeated = any(packet is each for each in self._written)
            self._written.append(packet)
            self._chunk(packet.message, packet.seq, repeated)

    def _chunk(self, chunk: Chunk, frame: int, repeated: bool) -> None:
        self._say(CHUNK, chunk.transfer, chunk.receiver, chunk.piece, chunk.offset, chunk.nbytes, frame, repeated)

    def _say(self, *line: Any) -> None:
        with self._lock:
            if self._over:
                return
            if self._file is None:
                assert self._agent is not None
                path = file_of(self._folder, self._agent.host.host)
                self._file = path.open("a", buffering=1, encoding="utf-8")
                self._file.write(json.dumps([BEGUN]) + "\n")
            self._file.write(json.dumps(line) + "\n")


def _wrap(thing: Any, name: str, told: Callable[..., None]) -> None:
    inner = getattr(thing, name)

    def outer(*arguments: Any) -> None:
        told(*arguments)
        inner(*arguments)

    setattr(thing, name, outer)


def file_of(folder: Path, host: int) -> Path:
    return folder / f"host-{host}.jsonl"


def lines_of(path: Path) -> Iterator[list[Any]]:
    """The lines of one host, in order, without a last line that was cut off by the end of the process."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
