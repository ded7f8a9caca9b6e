"""One executor for many alike hosts does, host by host, what one executor for each would do.

`Cohorts` plays a stream to a few executors that stand for six hosts between them, and to six that stand for themselves.
The same devices answer both. It splits and joins as it must, and at random.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from core import protocol as p
from core.host import Executor
from core.model import spans
from core.model.errors import Illegal
from core.model.place import Place
from core.model.plan import Move
from core.model.spans import Spans
from sim.cohort import AlikeHosts
from tests.core.hostworld import Cluster, Stream, gang, layout
from tests.laws import examples

from .alike_hosts import ALL, BAD, FAR, FIRSTS, HALF, ODD, REST, SOME, WHOLE, ordered, plan_and_run, same, seat, seated

WITH_SEQ = p.GangStep | p.SendStep | p.RecvStep | p.SpillStep | p.RestoreStep


def effect_on(effect: p.Command, host: int) -> p.Effect:
    """What an effect of an executor that stands for many hosts is on this one of them."""
    if not isinstance(effect, p.ToController):
        return effect
    report = effect.report
    if isinstance(report, p.Seated | p.HostFault | p.Lost):
        return effect if report.host == host else p.ToController(replace(report, host=host), effect.causes)
    return p.ToController(replace(report, hosts=spans.one(host)), effect.causes)


class Cohort:
    """An executor, and what its hosts still owe it."""

    def __init__(self, executor: AlikeHosts) -> None:
        self.executor = executor
        self.running: list[int] = []  # gangs, in the order of their launches
        self.owed: list[Any] = []
        self.read = 0  # messages
        self.tree = 0
        self.receiving: set[int] = set()  # transfers
        self.answered: set[tuple[str, int]] = set()

    def split(self, part: Spans) -> Cohort:
        twin = Cohort(self.executor.split(part))
        twin.running, twin.owed, twin.read, twin.tree = [*self.running], [*self.owed], self.read, self.tree
        twin.receiving, twin.answered = {*self.receiving}, {*self.answered}
        return twin


def codes_asked_about(effects: list[p.Command]) -> set[tuple[int, int]]:
    return {(each.plan, each.code) for each in effects if isinstance(each, p.CompileCode) and each.about}


def unasked(effect: p.Effect) -> p.Effect:
    return replace(effect, about=False) if isinstance(effect, p.CompileCode) else effect


class Cohorts:
    def __init__(self, stream: Stream, random: Random, lane: str) -> None:
        self.stream, self.random = stream, random
        self.single = {host: Executor(host, Cluster(), lane=lane) for host in spans.items(ALL)}
        self.cohorts = [Cohort(AlikeHosts(ALL, Cluster(), lane=lane))]
        self.over: set[tuple[int, int]] = set()  # (seq, host)
        self.joins = self.splits = 0
        self._seat(self.cohorts[0])
        self._tell(self.cohorts[0], p.Reformed(0))
        while self._step():
            pass

    def _seat(self, cohort: Cohort) -> None:
        self._tell(cohort, *(seat(host, cohort.tree) for host in spans.items(cohort.executor.members)))

    def _tell(self, cohort: Cohort, *events: Any) -> None:
        """Tell all of its members, and their executor. All do the same, but that one of them says what is known of
        code."""
        did = cohort.executor.handle(events[0], 0)
        asked = set[tuple[int, int]]()
        for number, host in enumerate(spans.items(cohort.executor.members)):
            alone = self.single[host].handle(events[number % len(events)], number)
            asked |= codes_asked_about(alone)
            assert list(map(unasked, alone)) == [unasked(effect_on(effect, host)) for effect in did]
        assert codes_asked_about(did) == asked
        for effect in did:
            self._act(cohort, effect)

    def _step(self) -> bool:
        cohort = self.random.choice(self.cohorts)
        draw = self.random.random()
        if draw < 0.05:
            members = list(spans.items(cohort.executor.members))
            part = self.random.sample(members, self.random.randrange(len(members)))
            if part:
                self._split(cohort, spans.of(part))
        elif draw < 0.15:
            self._join(cohort, self.random.choice(self.cohorts))
        elif draw < 0.17:
            cohort.tree += 1
            self._seat(cohort)
        elif draw < 0.5 and self._may_read(cohort):
            self._read(cohort)
        elif cohort.running and self.random.random() < 0.5:
            self._finish(cohort)
        elif cohort.owed:
            self._tell(cohort, cohort.owed.pop(self.random.randrange(len(cohort.owed))))
        everything = len(self.stream.messages)
        return any(c.running or c.owed or c.read < everything for c in self.cohorts)

    def _may_read(self, cohort: Cohort) -> bool:
        """Whether the message may be read: the controller calls settled what all have reported."""
        if cohort.read == len(self.stream.messages):
            return False
        settled = self.stream.messages[cohort.read].settled
        for message in self.stream.messages[: cohort.read]:
            for step in message.steps:
                if isinstance(step, WITH_SEQ) and step.seq < settled:
                    for host in spans.items(spans.meet(step.hosts, ALL)):
                        if (step.seq, host) not in self.over:
                            return False
        return True

    def _read(self, cohort: Cohort) -> None:
        message = self.stream.messages[cohort.read]
        parts = cohort.executor.divides(message)
        if parts:
            with pytest.raises(Illegal, match="split"):
                cohort.executor.handle(message, 0)
            assert spans.union(*parts) == cohort.executor.members
        for part in parts[1:]:
            self._split(cohort, part)
        assert cohort.executor.divides(message) == ()
        cohort.read += 1
        self._tell(cohort, message)

    def _finish(self, cohort: Cohort) -> None:
        """Finish a gang. If it fails, it fails on one of the hosts."""
        seq = cohort.running[0]
        fate = self.stream.fates["done", seq]
        if fate is not None and spans.count(cohort.executor.members) > 1:
            with pytest.raises(Illegal, match="split"):
                cohort.executor.handle(p.Finished(seq, fate), 0)
            self._split(cohort, spans.one(self.random.choice(list(spans.items(cohort.executor.members)))))
            cohort, fate = self.random.choice([(cohort, None), (self.cohorts[-1], fate)])
        cohort.running.remove(seq)
        self._tell(cohort, p.Finished(seq, fate))

    def _split(self, cohort: Cohort, part: Spans) -> None:
        self.cohorts.append(cohort.split(part))
        self.splits += 1

    def _join(self, cohort: Cohort, other: Cohort) -> None:
        if cohort is not other and same(cohort.executor, other.executor):
            assert (cohort.running, cohort.owed, cohort.read) == (other.running, other.owed, other.read)
            cohort.executor.absorb([other.executor])
            self.cohorts.remove(other)
            self.joins += 1

    def join_all(self) -> None:
        tree = 1 + max(cohort.tree for cohort in self.cohorts)
        for cohort in self.cohorts:
            cohort.tree = tree
            self._seat(cohort)
        for other in self.cohorts[1:]:
            self._join(self.cohorts[0], other)

    # --- what devices, compilers and transfers do with it ---------------------------------------------------

    def _act(self, cohort: Cohort, effect: p.Command) -> None:
        fates = self.stream.fates
        match effect:
            case p.Launch(seq=seq):
                cohort.running.append(seq)
            case p.SpillBuffer(seq=seq) | p.RestoreBuffer(seq=seq):
                cohort.owed.append(p.Copied(seq))
            case p.CompileCode(plan=number, code=code):
                cohort.owed.append(p.CodeReady(number, code))
            case p.CountRows(transfer=transfer):
                cohort.owed.append(p.RowsCounted(transfer, fates["count", transfer]))
            case p.OpenSend(transfer=transfer):
                self._once(cohort, "sent", p.Sent(transfer))
            case p.OpenRecv() | p.ExpectRecv() | p.DropTransfer():
                self._receive(cohort, effect)
            case p.ToController(report=p.Done(seq=seq)):
                self.over.update((seq, host) for host in spans.items(cohort.executor.members))
            case _:
                pass

    def _receive(self, cohort: Cohort, effect: p.OpenRecv | p.ExpectRecv | p.DropTransfer) -> None:
        fate = self.stream.fates.get(("recv", effect.transfer))
        if isinstance(effect, p.OpenRecv):
            cohort.receiving.add(effect.transfer)
        if isinstance(effect, p.DropTransfer):
            if fate == "dropped" and effect.transfer in cohort.receiving:
                self._once(cohort, "recv", p.Received(effect.transfer, effect.blame))
        elif fate == "spoilt":
            self._once(cohort, "recv", p.Received(effect.transfer, BAD))
        elif fate == "data" and not (isinstance(effect, p.OpenRecv) and effect.sparse):
            self._once(cohort, "recv", p.Received(effect.transfer))

    def _once(self, cohort: Cohort, kind: str, event: p.Received | p.Sent) -> None:
        if (kind, event.transfer) not in cohort.answered:
            cohort.answered.add((kind, event.transfer))
            cohort.owed.append(event)


def stream_of(seed: int, travel: float) -> Stream:
    near = (WHOLE, WHOLE, WHOLE, HALF, REST, SOME, FIRSTS, ODD)
    return Stream(Random(seed), hosts=ALL, near=near, far=FAR, travel=travel, replicated=0.5)


seeds = st.integers(0, 2**32)


@examples(30)
@given(seeds, seeds, st.sampled_from(["host", "device"]), st.sampled_from([0.0, 0.1, 1.0]))
def test_on_each_host_it_does_what_an_executor_of_its_own_would_do(
    seed: int, delays: int, lane: str, travel: float
) -> None:
    cohorts = Cohorts(stream_of(seed, travel), Random(delays), lane)
    cohorts.join_all()
    assert [cohort.executor.members for cohort in cohorts.cohorts] == [ALL]  # all is settled and alike


def test_the_world_of_this_test_splits_and_joins_cohorts() -> None:
    played = [Cohorts(stream_of(seed, 0.1), Random(seed), "host") for seed in range(12)]
    assert sum(cohorts.splits for cohorts in played) > 50
    assert sum(cohorts.joins for cohorts in played) > 10


# --- what divides a cohort, and what does not ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "parts"),
    [
        (WHOLE, ()),
        (FIRSTS, ()),
        (HALF, (((0, 3),), ((3, 6),))),
        (SOME, (((0, 1), (3, 6)), ((1, 3),))),
        (ODD, (((0, 2),), ((2, 3),), ((3, 6),))),
    ],
)
def test_a_place_divides_a_cohort_if_its_hosts_have_different_devices_of_it(place: Place, parts: Any) -> None:
    executor = seated()
    message = ordered(1, **plan_and_run(place))
    assert executor.divides(message) == parts
    if parts:
        with pytest.raises(Illegal, match=r"message 1 divides hosts 0-5: split them first \(0"):
            executor.handle(message, 0)
    executor.handle(ordered(1), 0)  # nothing had changed


def test_a_message_or_a_step_for_some_hosts_divides_a_cohort() -> None:
    executor = seated()
    assert executor.divides(ordered(1, hosts=((2, 4),))) == (((0, 2), (4, 6)), ((2, 4),))
    assert executor.divides(ordered(1, p.GangStep(1, 1, 0, ((0, 2), (3, 6))))) == (((0, 2), (3, 6)), ((2, 3),))
    assert executor.divides(ordered(1, p.GangStep(1, 1, 0, ((0, 4),)), p.GangStep(2, 1, 0, ((2, 6),)))) == (
        ((0, 2),), ((2, 4),), ((4, 6),),
    )  # fmt: skip
    assert executor.divides(ordered(1, p.GangStep(1, 1, 0, ((6, 9),)))) == ()  # none of them


def test_a_host_that_sends_or_receives_is_alone() -> None:
    executor = seated()
    made = plan_and_run(WHOLE, gang("g", WHOLE, (), (0,)), Move("out", (0,), (1,), False, 0))
    enter = p.GangStep(1, 1, 0, ALL)
    # All six have the same, and each of the three hosts that want it asks another one.
    found = executor.divides(ordered(1, enter, p.SendStep(2, 1, 1, ALL, 2), **made))
    singles = [part for part in found if spans.count(part) == 1]
    assert len(singles) == 3
    assert len(found) == 4
    assert executor.divides(ordered(1, p.RecvStep(1, -1, 9, ALL, 1, -1, 7, 1, layout(WHOLE, 24)))) == tuple(
        spans.one(host) for host in range(6)
    )


def test_a_get_of_a_replicated_buffer_divides_the_host_that_sends_it() -> None:
    executor = seated()
    get = p.SendStep(2, -1, 100, ALL, 2, 7)
    first = ordered(1, p.GangStep(1, 1, 0, ALL), get, **plan_and_run(WHOLE))  # made by the same message
    assert executor.divides(first) == (((0, 1),), ((1, 6),))
    executor.handle(ordered(1, p.GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE)), 0)
    assert executor.divides(ordered(2, get)) == (((0, 1),), ((1, 6),))
    assert executor.split(((1, 6),)).divides(ordered(2, get)) == ()


def test_an_event_of_a_single_host_is_refused_and_changes_nothing() -> None:
    executor = seated()
    executor.handle(ordered(1, p.GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE)), 0)
    for event in (p.LaunchFailed(1, BAD), p.DeviceLost(3, BAD), p.Finished(1, BAD)):
        with pytest.raises(Illegal, match="split"):
            executor.handle(event, 0)
    said = executor.handle(p.Finished(1, p.Blame("user", "boom", host=4)), 0)  # all six say that it was host 4
    assert said == [p.ToController(p.Done(1, ALL, p.Blame("user", "boom", host=4)), (("done", 1),))]


def test_each_member_has_its_own_seat() -> None:
    executor = AlikeHosts(((2, 4),), Cluster())
    assert [type(e) for e in executor.handle(seat(3), 0)] == [p.Reform]
    (said,) = executor.handle(p.Reformed(0), 0)
    assert [effect_on(said, host).report.host for host in (2, 3)] == [2, 3]  # type: ignore[union-attr]


def test_the_host_that_stands_for_a_cohort_is_one_of_its_members() -> None:
    with pytest.raises(Illegal, match="not among them"):
        Executor(7, Cluster(), members=ALL)
