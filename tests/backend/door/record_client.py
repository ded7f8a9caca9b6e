"""Records what the installed jaxlib's client sends when it connects, puts an array, and leaves.

`python -m tests.backend.door.record_client` writes recordings/jaxlib-VERSION.txt: a line for each read, with the number
of the connection and the bytes in hexadecimal. `test_recorded_clients` plays them.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backend.door.server import door_server

from .minimal_session import MinimalSession
from .test_real_client import CLIENT

RECORDINGS = Path(__file__).parent / "recordings"


async def record() -> list[str]:
    lines: list[str] = []
    connections: list[Any] = []
    receive = door_server._Connection.data_received

    def recorded(self: Any, data: bytes) -> None:
        if self not in connections:
            connections.append(self)
        lines.append(f"{connections.index(self)} {data.hex()}")
        receive(self, data)

    door_server._Connection.data_received = recorded  # type: ignore[method-assign]
    with TemporaryDirectory() as folder:
        server = await door_server.listen_for_clients(MinimalSession, f"unix:{folder}/door.sock")
        server.sessions._draw = lambda: 7
        env = {**os.environ, "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true"}
        client = CLIENT.replace("600_000.0", "3.0")
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", client, f"grpc://{server.address}", env=env)
        await child.wait()
        server.close()
    return lines


if __name__ == "__main__":
    found = asyncio.run(record())
    RECORDINGS.mkdir(exist_ok=True)
    path = RECORDINGS / f"jaxlib-{importlib.metadata.version('jaxlib')}.txt"
    path.write_text("\n".join(found) + "\n")
