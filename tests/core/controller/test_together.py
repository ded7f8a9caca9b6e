"""Equal messages of several roots are handled as one, with the same result as one after another, to the byte.

The events that a controller was given in random worlds are given again to two controllers: to one as they came, to the
other with equal messages merged. Some messages are repeated in the name of other roots, which makes histories that no
world has: a controller takes those as well, and must handle them the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from core.controller import Config, Controller
from core.model import spans
from core.model.spans import Spans
from core.model.topology import Cluster
from core.protocol.effects import Came, CameTogether, Command, Event
from core.protocol.messages import Beat, Blame, Done, Lost, Reports, Trouble
from core.record.eventlog import CommandHash, LogAbout, Recorder, decode, replay
from tests.fuzz.draw import draw
from tests.fuzz.play import play
from tests.world.world import World

Told = tuple[Event, int]


class Tape:
    """A controller in a world, and how to make another. `told` is all that it was told."""

    def __init__(self, *args: Any, **more: Any) -> None:
        more.pop("observe", None)
        self.args, self.more = args, more
        self.real = Controller(*args, **more)
        self.told: list[Told] = []

    def another(self) -> Controller:
        return Controller(*self.args, **self.more)

    def handle(self, event: Event, now: int) -> list[Command]:
        self.told.append((event, now))
        return self.real.handle(event, now)

    def next_wakeup(self) -> int | None:
        return self.real.next_wakeup()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def tapes_of(seed: int) -> list[Tape]:
    tapes: list[Tape] = []

    def tape(*args: Any, **more: Any) -> Tape:
        tapes.append(Tape(*args, **more))
        return tapes[-1]

    case = draw(seed)
    policy = (
        "user" if case.setup.policy == "faulty" else case.setup.policy
    )  # a faulty policy draws at random, and never the same
    setup = replace(case.setup, policy=policy, jitter=0, fanout=max(4, case.setup.fanout))
    case = replace(case, setup=setup)
    with patch("tests.world.world.Controller", tape):
        play(case, check=False)
    return tapes


def same(one: Event, other: Event) -> bool:
    """Whether messages of two roots differ only in their hosts."""
    if not (isinstance(one, Came) and isinstance(one.message, Reports)):
        return False
    if not (isinstance(other, Came) and isinstance(other.message, Reports)) or one.peer == other.peer:
        return False
    return bare(one.message) == bare(other.message)


def bare(message: Reports) -> Reports:
    said = [r if isinstance(r, Lost | Trouble) else replace(r, hosts=()) for r in message.reports]
    return replace(message, reports=tuple(said))


def groups(told: list[Told]) -> Iterator[list[Told]]:
    """Group neighbours on the tape that say the same. Any other event is a group by itself."""
    group: list[Told] = []
    for event, now in told:
        peers = {each.peer for each, _ in group if isinstance(each, Came)}
        if group and not (same(group[0][0], event) and event.peer not in peers):  # type: ignore[attr-defined]
            yield group
            group = []
        group.append((event, now))
    yield group


def together(group: list[Came]) -> CameTogether:
    first = group[0].message
    assert isinstance(first, Reports)
    columns = zip(*(each.message.reports for each in group), strict=True)  # type: ignore[attr-defined]
    reports = tuple(
        column[0] if isinstance(column[0], Lost | Trouble)
        else replace(column[0], hosts=spans.union(*(r.hosts for r in column)))
        for column in columns
    )  # fmt: skip
    return CameTogether(spans.of(each.peer for each in group), replace(first, reports=reports))


def chorus(controller: Controller, said: Came, random: Random) -> list[Came]:
    """The same message from some other roots too, each for the hosts below it, in order."""
    assert isinstance(said.message, Reports)
    island = controller.state.islands[said.message.island]
    hosts = {island.peers[root]: root for root in island.stream.shape.roots if root in island.peers}
    if said.peer not in hosts or any(isinstance(r, Lost | Trouble) for r in said.message.reports):
        return [said]
    peers = sorted(peer for peer in hosts if peer == said.peer or random.random() < 0.7)
    found = []
    for peer in peers:
        below = island.stream.shape.below(hosts[peer])
        mine = tuple(replace(r, hosts=below) for r in said.message.reports)
        found.append(Came(peer, replace(said.message, reports=mine)))
    return found


@pytest.mark.parametrize("first", range(0, 30, 10))
@pytest.mark.parametrize("chance", [0.0, 0.3])
def test_merged_and_separate_messages_have_the_same_effect_to_the_byte(first: int, chance: float) -> None:
    joined = sum(compare(seed, chance) for seed in range(first, first + 10))
    assert joined > 100


def compare(seed: int, chance: float) -> int:
    """Compare the two controllers. Returns how many messages were merged."""
    random, joined = Random(seed), 0
    for tape in tapes_of(seed):
        apart, as_one = tape.another(), tape.another()
        said, heard = CommandHash(), CommandHash()
        for group in groups(tape.told):
            events, now = [event for event, _ in group], group[-1][1]
            if isinstance(events[0], Came) and isinstance(events[0].message, Reports) and len(events) == 1:
                if random.random() < chance:
                    events = list(chorus(apart, events[0], random))
            one: Event = events[0]
            if len(events) > 1:
                events.sort(key=lambda event: event.peer)  # type: ignore[attr-defined]
                one = together(events)  # type: ignore[arg-type]
                joined += as_one._checks.may_take(one)
            first = [effect for event in events for effect in apart.handle(event, now)]
            second = list(as_one.handle(one, now))
            assert first == second, (events, one)
            assert said.add(first) == heard.add(second)
    return joined


# --- examples -----------------------------------------------------------------------------------------------


def running(fanout: int = 8) -> tuple[World, Controller]:
    cluster = Cluster.from_table({"island": [{"name": "i", "hosts": 6, "devices_per_host": 1}]})
    world = World(cluster, config=Config(fanout=fanout), check=False)
    world.run()
    machine = world.controller.endpoint.machine.machine  # type: ignore[attr-defined]
    return world, machine


def reports(controller: Controller, *said: Any) -> Reports:
    island = controller.state.islands[0]
    return Reports(0, island.epoch, island.tree_number, said)


ALL: Spans = ((0, 6),)


def test_a_root_that_lies_is_closed_and_the_others_are_heard() -> None:
    _, controller = running()
    effects = controller.handle(CameTogether(ALL, reports(controller, Beat(((0, 7),), 1))), 10**12)
    closed = [e.peer for e in effects if type(e).__name__ == "Close"]  # type: ignore[attr-defined]
    assert closed == [0]
    assert controller.state.islands[0].members == ((1, 6),)


def test_a_host_that_is_no_root_is_closed() -> None:
    _, controller = running(fanout=2)
    assert controller.state.islands[0].stream.shape.roots == (0, 3)
    effects = controller.handle(CameTogether(((0, 1), (2, 4)), reports(controller, Beat(ALL, 1))), 10**12)
    assert [e.peer for e in effects if type(e).__name__ == "Close"] == [2]  # type: ignore[attr-defined]


def test_a_blame_is_handled_for_each_root() -> None:
    """The run fails with the first of them, before the others have reported."""
    said = Done(10**9, ALL, Blame("user", "boom"))
    _, controller = running()
    assert not controller._checks.may_take(CameTogether(ALL, reports(controller, said)))
    assert controller._checks.may_take(CameTogether(ALL, reports(controller, Done(10**9, ALL))))


def test_a_merged_message_is_recorded_like_any_event() -> None:
    _, controller = running()
    event = CameTogether(ALL, reports(controller, Beat(ALL, 1), Done(3, ALL)))
    recorder = Recorder(Controller(controller.cluster), LogAbout())
    recorder.handle(event, 5)
    log = decode(recorder.log())
    assert log.entries[0].event == event
    assert len(replay(log, lambda about: Controller(controller.cluster))) == 1
