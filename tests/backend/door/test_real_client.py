"""The client in the installed jaxlib, in a process of its own, against our transport and a session that only greets."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from backend.door.server.door_server import listen_for_clients
from backend.door.session.session_port import SessionLink, SessionPort, Version

from .minimal_session import MinimalSession

CLIENT = """
import sys
import time

import jax
import numpy
from jax.extend.backend import ifrt_proxy, register_backend_factory


def client():
    options = ifrt_proxy.ClientConnectionOptions()
    options.connection_timeout_in_seconds = 20
    options.initialization_data = {"tenant": b"ann"}
    return ifrt_proxy.get_client(sys.argv[1], options)


register_backend_factory("door", client, priority=1000)
jax.config.update("jax_platforms", "door,cpu")
print(jax.devices()[0].platform, [device.id for device in jax.devices()], jax.process_index())
try:
    jax.device_put(numpy.arange(600_000.0)).block_until_ready()
except Exception as error:
    print(error)
time.sleep(0.5)  # contents travel on a stream of their own, and the refusal may have been faster
"""


def test_the_client_greets_sends_an_array_and_goes(tmp_path: Path) -> None:
    sessions: list[MinimalSession] = []

    def opening(version: Version, link: SessionLink) -> SessionPort:
        sessions.append(MinimalSession(version, link))
        return sessions[-1]

    async def serve() -> str:
        server = await listen_for_clients(opening, f"unix:{tmp_path}/door.sock")
        try:
            environment = {
                **os.environ,
                "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
                "TF_CPP_MIN_LOG_LEVEL": "3",
            }
            environment = {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CLIENT, f"grpc://{server.address}", env=environment,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            said, complaints = await asyncio.wait_for(child.communicate(), 60)
            assert child.returncode == 0, complaints.decode()
            for _ in range(100):
                if sessions[0].log[-1][0] == "ended":
                    break
                await asyncio.sleep(0.02)
            assert not server.sessions.open
            return said.decode()
        finally:
            server.close()

    said = asyncio.run(serve())
    assert said.splitlines() == ["cpu [0, 1] 0", "UNIMPLEMENTED: no check_value_ready_request here"]
    (session,) = sessions
    assert session.version.protocol_version == 25
    stored = next(iter(session.buffers.values()))
    assert len(stored) in (4 * 600_000, 8 * 600_000)
    assert session.log[0] == ("receive", "init_request")
    assert ("store", next(iter(session.buffers))) in session.log
    assert session.log[-1][0] == "ended"
    assert len([name for name, _ in session.log if name == "ended"]) == 1
