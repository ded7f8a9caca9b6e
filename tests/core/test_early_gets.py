"""Hosts send what a client reads as soon as it is there; the client hands it over when it is known to count."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from core.client.content_transfers import ContentTransfers
from core.model.topology import Cluster, Island
from core.protocol import Blame
from tests.core.build import Build
from tests.world.script import Fetch, RunHandle
from tests.world.timing import MS
from tests.world.world import World

TWO = Cluster((Island(name="i", hosts=2, devices_per_host=2),))
SLOW = 100  # times as long on host 1


def begun(fails: bool = False, diary: bool = False) -> tuple[World, RunHandle, Fetch]:
    """A result that all devices have is read while it is made. Host 0 has it, and has sent it, when host 1 is at work
    still."""
    world = World(TWO, diary=diary)
    a = world.client("a")
    world.slow(1, SLOW)
    if fails:
        world.break_gang(1, "step")
    b = Build("apart", s=4)
    x = b.arg("s", 4)
    program = b.program(b.call("step", "s", [x], collective=False, cost=MS))
    run = a.submit(program, bytes(16))
    world.run_until(lambda: bool(world.machine.state.in_flight))
    fetch = a.get(run.results[0])
    world.run_for(20 * MS)
    return world, run, fetch


def test_contents_come_before_they_count() -> None:
    world, run, fetch = begun(diary=True)
    assert world.diary is not None
    assert [line for line in world.diary if "client a" in line and "chunk" in line]
    assert not fetch.over
    assert not run.ended
    assert world.run()
    assert fetch.right
    assert not world.faults


def test_what_another_host_fails_to_make_is_not_read() -> None:
    world, run, fetch = begun(fails=True)
    assert world.run()
    assert run.blame is not None
    assert fetch.blame == run.blame
    assert not world.faults


def test_the_world_notices_a_client_that_takes_what_comes_early_as_final() -> None:
    receive = ContentTransfers._receive

    def hasty(self: ContentTransfers, coming: Any, now: int) -> None:
        receive(self, replace(coming, early=False), now)

    with patch.object(ContentTransfers, "_receive", hasty):
        world, _, fetch = begun(fails=True)
        assert world.run()
    assert fetch.right
    assert any("which failed" in fault for fault in world.faults)


def test_a_lost_host_is_the_reason_that_the_reader_hears_and_not_what_the_other_host_saw_of_it() -> None:
    world, run, fetch = begun()
    world.crash_host(1)
    world.run_until(lambda: fetch.over)
    assert isinstance(fetch.blame, Blame)
    assert fetch.blame == run.blame
    assert fetch.blame.code == "host-lost"
    assert not world.faults


def test_a_buffer_that_its_reader_releases_at_once_is_read() -> None:
    world, run, fetch = begun()
    world.clients[0].release(run.results[0])
    assert world.run()
    assert fetch.right
    world.at_rest()
    assert not world.faults
