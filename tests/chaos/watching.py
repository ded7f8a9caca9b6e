"""Asks the controller for its status, again and again, in a thread of its own. The proxies run in its loop too."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from backend.auth.access import Access
from backend.node.calls import ask
from backend.wire.call_messages import Report, Status

from .proxy import Proxy

T = TypeVar("T")
EVERY, PATIENCE = 0.15, 1.5  # seconds


class Watch:
    """Watches the status. `status` is the last answer, from `at`; None while the controller has not answered the last
    question."""

    def __init__(self) -> None:
        self.status: dict[str, Any] | None = None
        self.at = 0.0  # when that was asked
        self.proxies: dict[str, Proxy] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="watch", daemon=True)
        self._thread.start()
        self._task: asyncio.Task[None] | None = None

    def begin(self, address: str, token: str = "") -> None:
        async def begin() -> None:
            self._task = asyncio.create_task(self._ask(address, Access(token)))

        self.do(begin())

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    def proxy(self, name: str, port: int) -> int:
        """The port of the proxy of this name, which leads to this port of ours."""
        found = self.proxies.get(name)
        if found is not None and found.to[1] != port:
            self.do(found.stop())
            found = None
        if found is None:
            found = self.proxies[name] = self.do(Proxy(("127.0.0.1", port)).start())
        return found.port

    async def _ask(self, address: str, access: Access) -> None:
        channel = access.channel(address)
        try:
            while True:
                asked = time.monotonic()
                try:
                    report: Report = await ask(channel, access, Status(), PATIENCE)
                    self.status = json.loads(report.json)
                except Exception:  # on any error: no answer
                    self.status = None
                self.at = asked
                await asyncio.sleep(EVERY)
        finally:
            await channel.close()

    def stop(self) -> None:
        async def stop() -> None:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
            for proxy in self.proxies.values():
                await proxy.stop()

        self.do(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


def standing(status: dict[str, Any] | None, quiet: bool = False, clients: int | None = None) -> str:
    """What keeps the cluster from being whole; "" if it is. `quiet`: clients hold nothing and call nothing; `clients`:
    how many there are then."""
    if status is None:
        return "the controller does not answer"
    for island in status["islands"]:
        if island["phase"] != "running":
            return f"island {island['name']} is {island['phase']}"
        missing = [str(host["host"]) for host in island["hosts"] if not (host["connected"] and host["member"])]
        if missing:
            return f"hosts {', '.join(missing)} of island {island['name']} are not there"
        if island["stalled"]:
            return f"island {island['name']} is stalled: {island['late']}"
        if quiet and island["under_way"]:
            return f"{island['under_way']} steps are under way on island {island['name']}, and nobody calls"
    for name in ("runs", "buffers") if quiet else ():
        if status[name]:
            return f"{status[name]} {name}, and nobody holds any"
    if quiet and clients is not None and len(status["clients"]) > clients:
        names = ", ".join(sorted(each["name"] for each in status["clients"]))
        return f"{len(status['clients'])} clients ({names}), and {clients} have a session"
    return ""
