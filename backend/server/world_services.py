"""The collective worlds of islands: a coordination process for each epoch, so that its death ends no other process.

The service of an old epoch stays until all members have joined a newer one: until then they may still be leaving. If
a service dies early, its members live on, but no process can join its world any more. Core is told, and forms the
next. Neighbours: `server`, which gets FormWorld; `coordination`, the process; `children`.
"""

import asyncio
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

from core.model import spans
from core.protocol import Blame
from core.protocol import effects as e

from ..admin import Child, Children
from ..coordination import world_name

KEPT = 3  # most services of one island; if epochs follow each other fast, the latest ones


class WorldServices:
    """Forms worlds. `bind`: where services listen. `collective`: whether an island's hosts need a service (not if
    their devices do not communicate). It calls `announce(name, address)`, and then `post` with WorldUp."""

    def __init__(
        self, children: Children, bind: str, collective: Callable[[int], bool],
        announce: Callable[[str, str], None], post: Callable[[e.Event], None],
    ) -> None:  # fmt: skip
        self._children, self._bind, self._collective = children, bind, collective
        self._announce, self._post = announce, post
        self._services: dict[int, dict[int, Child]] = {}  # island -> epoch -> its service

    async def form(self, command: e.FormWorld) -> None:
        island, epoch = command.island, command.epoch
        members = spans.count(command.members)
        name = world_name(island, epoch)
        try:
            address = ""
            if members > 1 and self._collective(island):
                address = await asyncio.to_thread(self._serve, command, name, members)
        except Exception as error:
            self._post(e.WorldFailed(island, epoch, Blame("world", str(error))))
            return
        self._announce(name, address)
        self._post(e.WorldUp(island, epoch))

    def _serve(self, command: e.FormWorld, name: str, members: int) -> str:
        arguments = ["--world", name, "--members", str(members), "--bind", self._bind]
        child = self._children.start(name, "backend.coordination.service", arguments, stdout=subprocess.PIPE)
        services = self._services.setdefault(command.island, {})
        services[command.epoch] = child
        for epoch in sorted(services)[:-KEPT]:
            self._children.end(services.pop(epoch))
        assert child.process.stdout is not None
        line = child.process.stdout.readline().strip()
        if not line.isdigit():
            raise RuntimeError(f"the coordination service of {name} did not start: {child.tail() or '(no output)'}")
        threading.Thread(target=self._watch, args=(child, command), name=name, daemon=True).start()
        return f"{self._bind}:{int(line)}"

    def drop(self, command: e.DropWorlds) -> None:
        """Ends the services of old epochs; called in the loop."""
        services = self._services.get(command.island, {})
        for child in [services.pop(epoch) for epoch in sorted(services) if epoch < command.epoch]:
            threading.Thread(target=self._children.end, args=(child,), name="drop", daemon=True).start()

    def _watch(self, child: Child, command: e.FormWorld) -> None:
        """Waits for the end of a service: it prints nothing more, so its output closes when it ends."""
        assert child.process.stdout is not None
        with suppress(ValueError):  # the service is being ended, and its output closed
            child.process.stdout.read()
        if not child.ended:
            reason = f"its coordination process has died. {child.tail()}".strip()
            self._children.end(child)
            self._post(e.WorldFailed(command.island, command.epoch, Blame("world", reason)))
