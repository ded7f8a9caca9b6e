"""A controller says what goes on to those who have its token: all of it at first, and then what is new."""

from __future__ import annotations

from pathlib import Path

from backend.admin import fetch_look
from core.record import LiveLook, Look, TraceCursor
from tests.backend.cluster import Cluster, cluster
from tests.backend.test_faults import register, runs

PATIENCE = 10.0


async def look(found: Cluster, request: Look | None = None) -> LiveLook:
    access = found.server.access
    async with access.channel(found.server.address) as channel:
        return await fetch_look(channel, access, request or Look(), PATIENCE)


def after(seen: LiveLook) -> Look:
    return Look(seen.identity, TraceCursor(seen.trace.after, {}, seen.trace.known_places))


async def test_it_tells_of_islands_hosts_clients_and_all_that_has_run(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user("ann")
        await runs(user, register(user, 3))
        seen = await look(found)
        assert seen.view is not None
        (island,) = seen.view.islands
        assert (island.name, island.phase, island.policy, island.members) == ("i0", "running", "Fifo", ((0, 2),))
        assert seen.connected == ((0, 2),)
        assert [each.agent for each in seen.hosts] == ["host-0", "host-1"]
        assert (await look(found, Look(hosts=False))).hosts == ()
        assert [each.name for each in seen.view.clients] == ["ann"]
        assert len(seen.trace.column("gangs", "seq")) == 3
        assert seen.trace.column("runs", "ended")[0] > 0
        assert seen.began < seen.now


async def test_a_second_look_has_only_what_is_new_and_all_of_it_if_the_first_was_at_another_controller(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as found:
        user = found.user("ann")
        program = register(user, 3)
        await runs(user, program)
        first = await look(found)
        again = await look(found, after(first))
        assert len(again.trace.column("gangs", "seq")) == len(again.trace.column("runs", "run")) == 0
        assert again.trace.places == {}
        await runs(user, program)
        new = await look(found, after(again))
        assert len(new.trace.column("gangs", "seq")) == 3
        assert min(new.trace.column("gangs", "seq")) > max(first.trace.column("gangs", "seq"))
        stranger = Look("of another start", TraceCursor({"gangs": 1 << 40, "runs": 1 << 40}, {}, 99))
        assert len((await look(found, stranger)).trace.column("gangs", "seq")) == 6
        odd = TraceCursor({"gangs": -5, "nothing": 7}, {"gangs": [-1, 1 << 60], "runs": [3] * 1000}, -4, -1)
        assert (await look(found, Look(new.identity, odd))).identity == new.identity
        await runs(user, program)
