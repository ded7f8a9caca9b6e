"""A controller says what goes on to those who have its token: all of it at first, and then what is new."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.admin import fetch_look
from backend.auth.access import Access
from backend.node.calls import CallError
from core.record import LiveLook, Look, TraceCursor
from tests.backend.cluster import Cluster, User, chain, cluster

PATIENCE = 10.0


async def look(found: Cluster, request: Look | None = None, access: Access | None = None) -> LiveLook:
    shown = access or found.server.access
    channel = shown.channel(found.server.address)
    try:
        return await fetch_look(channel, shown, request or Look(), PATIENCE)
    finally:
        await channel.close()


def after(seen: LiveLook) -> Look:
    return Look(seen.identity, TraceCursor(seen.trace.after, {}, seen.trace.known_places))


async def ran(user: User, program: int) -> None:
    await user.ended(user.submit(program, bytes(32)).run)


def registered(user: User) -> int:
    number: int = user.call(lambda client, now: client.register(chain(3, 4), now))
    return number


async def test_it_tells_of_islands_hosts_clients_and_all_that_has_run(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user("ann")
        await ran(user, registered(user))
        seen = await look(found)
        assert seen.view is not None
        (island,) = seen.view.islands
        assert (island.name, island.phase, island.policy, island.members) == ("i0", "running", "Fifo", ((0, 2),))
        assert seen.connected == ((0, 2),)
        assert [each.agent for each in seen.hosts] == ["host-0", "host-1"]
        assert [each.name for each in seen.view.clients] == ["ann"]
        assert len(seen.trace.column("gangs", "seq")) == 3
        assert seen.trace.column("runs", "ended")[0] > 0
        assert seen.began < seen.now


async def test_a_second_look_has_only_what_is_new(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user("ann")
        program = registered(user)
        await ran(user, program)
        first = await look(found)
        again = await look(found, after(first))
        assert len(again.trace.column("gangs", "seq")) == len(again.trace.column("runs", "run")) == 0
        assert again.trace.places == {}
        await ran(user, program)
        new = await look(found, after(again))
        assert len(new.trace.column("gangs", "seq")) == 3
        assert min(new.trace.column("gangs", "seq")) > max(first.trace.column("gangs", "seq"))


async def test_one_who_knew_another_controller_gets_all_of_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user("ann")
        await ran(user, registered(user))
        stranger = Look("of another start", TraceCursor({"gangs": 1 << 40, "runs": 1 << 40}, {}, 99))
        assert len((await look(found, stranger)).trace.column("gangs", "seq")) == 3


async def test_hosts_are_described_only_if_that_is_asked_for(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        assert (await look(found, Look(hosts=False))).hosts == ()


async def test_without_the_token_nobody_is_told_anything(tmp_path: Path) -> None:
    async with cluster(tmp_path, access=Access("secret")) as found:
        for shown in (Access(), Access("wrong")):
            with pytest.raises(CallError, match="token"):
                await look(found, access=shown)
        assert (await look(found)).view is not None


async def test_a_cursor_that_makes_no_sense_is_answered_and_hurts_nobody(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user("ann")
        program = registered(user)
        await ran(user, program)
        mine = (await look(found)).identity
        odd = TraceCursor({"gangs": -5, "nothing": 7}, {"gangs": [-1, 1 << 60], "runs": [3] * 1000}, -4, -1)
        assert (await look(found, Look(mine, odd))).identity == mine
        await ran(user, program)
