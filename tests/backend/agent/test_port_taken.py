"""An agent that starts over may find its port given to another socket."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

from tests.backend.real import PATIENCE, Real


async def test_an_agent_that_starts_over_waits_for_its_port(tmp_path: Path) -> None:
    cluster = Real(tmp_path, hosts=1)
    try:
        cluster.start_controller()
        with socket.socket() as other:  # as the kernel binds one for an outgoing connection
            other.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{other.getsockname()[1]}"
            new = cluster.agent(0, "--bind", address)
            assert await new.ended() == 2
            assert f"cannot listen on {address}: is the port taken?" in new.said()
            again = cluster.agent(0, "--bind", address, "--started-over")
            until = time.monotonic() + PATIENCE
            while "still trying" not in again.said():
                assert time.monotonic() < until
                await asyncio.sleep(0.05)
            assert again.process.poll() is None
        await cluster.ready()
    finally:
        await cluster.stop()
