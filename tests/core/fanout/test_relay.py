"""Relays pass an order to exactly those who must see it, and what comes up is one report a subtree."""

import pytest
from msgspec.structs import replace

from core.fanout.relay import EARLY, SWEEP, Relay
from core.model.errors import Illegal
from core.model.spans import Spans
from core.protocol.effects import Close, Command, Send, Tell
from core.protocol.messages import (
    Arrived,
    AskStep,
    Beat,
    Blame,
    Compiled,
    CompileStep,
    Counted,
    Done,
    Enqueued,
    ForgetStep,
    GangStep,
    Lost,
    Ordered,
    Report,
    Reports,
    Seat,
    SendStep,
    Step,
    Trouble,
)

PERIOD, PATIENCE = 1_000, 50
CHILDREN = ((1, ((1, 3),)), (3, ((3, 4),)))  # 2 hangs below 1
ALL = ((0, 4),)


class SpeakingRelay(Relay):
    """Returns what it says. `ours`: orders that are for this host's executor."""

    def __init__(self) -> None:
        super().__init__(0, PERIOD, PATIENCE)
        self.ours: list[Ordered] = []

    def tell(self, peer: int, message: Ordered) -> list[Command]:
        out: list[Command] = []
        if self.ordered(peer, message, out):
            self.ours.append(message)
        return out

    def hear(self, peer: int, message: Reports, now: int) -> list[Command]:
        out: list[Command] = []
        self.reports(peer, message, now, out)
        return out

    def sit(self, seat: Seat, now: int) -> list[Command]:
        out: list[Command] = []
        self.seated(seat, now, out)
        return out

    def end(self) -> list[Command]:
        out: list[Command] = []
        self.flush(out)
        return out


def relay(children: tuple[tuple[int, Spans], ...] = CHILDREN) -> SpeakingRelay:
    """Host 0, a root; the tree is number 1 of epoch 1."""
    made = SpeakingRelay()
    assert made.sit(Seat(0, 1, 1, 0, -1, children, ALL, 0), 0) == []
    return made


def gang(seq: int, hosts: Spans = ALL) -> GangStep:
    return GangStep(seq, run=1, step=0, hosts=hosts)


def order(number: int, *steps: Step, hosts: Spans = ALL, settled: int = 0) -> Ordered:
    return Ordered(0, 1, 1, number, hosts, settled, (), (), steps)


def up(*reports: Report) -> Reports:
    return Reports(0, 1, 1, reports)


def said(effects: list[Command]) -> list[Report]:
    """What the one message to the parent says."""
    if not effects:
        return []
    [send] = effects
    assert isinstance(send, Send)
    assert send.peers == (-1,)
    assert isinstance(send.message, Reports)
    return list(send.message.reports)


# ---------------------------------------------------------------------------------------------------------- d


def test_an_order_goes_to_the_children_that_lead_to_its_hosts_and_to_the_executor_if_it_is_meant() -> None:
    host = relay()
    wide, narrow, own = (
        order(1, gang(1)),
        order(2, gang(2, ((2, 3),)), hosts=((2, 3),)),
        order(3, hosts=((0, 1),)),
    )
    assert host.tell(-1, wide) == [Send((1, 3), wide)]
    assert host.tell(-1, narrow) == [Send((1,), narrow)]
    assert host.tell(-1, own) == []
    assert host.ours == [wide, own]
    [passed] = host.tell(-1, (again := order(4)))
    assert isinstance(passed, Send)
    assert passed.message is again


def test_what_comes_late_or_by_another_path_goes_nowhere() -> None:
    host = relay()
    host.tell(-1, order(5))
    for stale in (
        order(5),
        replace(order(6), tree=0),
        replace(order(6), epoch=0),
        replace(order(6), island=1),
    ):
        [refused] = host.tell(-1, stale)
        assert isinstance(refused, Tell)
        assert "refused from peer -1" in refused.text
    assert len(host.ours) == 1


def test_only_the_parent_gives_orders() -> None:
    [close] = relay().tell(7, order(1))
    assert isinstance(close, Close)
    assert close.peer == 7


# ------------------------------------------------------------------------------------------------------------


def test_reports_of_all_below_go_up_as_one() -> None:
    host = relay()
    host.tell(-1, order(1, gang(8)))
    host.report(Done(8, ((0, 1),)), 0)
    host.hear(1, up(Done(8, ((1, 3),))), 0)
    assert host.end() == []
    host.hear(3, up(Done(8, ((3, 4),))), 0)
    assert said(host.end()) == [Done(8, ALL)]
    assert host.end() == []
    assert not host._steps


def test_only_those_who_take_part_are_waited_for() -> None:
    host = relay()
    host.tell(-1, order(1, gang(8, ((2, 9),))))
    host.hear(1, up(Enqueued(8, ((2, 3),))), 0)
    assert said(host.end()) == []
    host.hear(3, up(Enqueued(8, ((3, 4),))), 0)
    assert said(host.end()) == [Enqueued(8, ((2, 4),))]


def test_what_one_turn_brings_leaves_as_one_message() -> None:
    host = relay()
    host.tell(-1, order(1, gang(8), gang(9)))
    for source, part in ((0, ((0, 1),)), (1, ((1, 3),))):
        host.hear(source, up(), 0)
        for seq in (8, 9):
            if source:
                host.hear(source, up(Done(seq, part)), 0)
            else:
                host.report(Done(seq, part), 0)
    host.hear(3, up(Done(8, ((3, 4),)), Done(9, ((3, 4),))), 0)
    assert said(host.end()) == [Done(8, ALL), Done(9, ALL)]


def test_sizes_are_the_largest_and_pieces_the_sum() -> None:
    host = relay(((1, ((1, 2),)),))
    host.tell(-1, order(1, gang(8, ((0, 2),)), SendStep(9, 1, 1, ((0, 2),), transfer=9)))
    host.report(Done(8, ((0, 1),), None, (3, 9)), 0)
    host.report(Counted(9, ((0, 1),), ((0, 2), (5, 1))), 0)
    host.hear(1, up(Done(8, ((1, 2),), None, (4, 7)), Counted(9, ((1, 2),), ((1, 1), (5, 4)))), 0)
    assert said(host.end()) == [
        Done(8, ((0, 2),), None, (4, 9)),
        Counted(9, ((0, 2),), ((0, 2), (1, 1), (5, 5))),
    ]


@pytest.mark.parametrize("turned", [False, True])
def test_exceptions_are_named_whatever_the_order_they_come_in(turned: bool) -> None:
    host = relay()
    host.tell(-1, order(1, gang(8)))
    parts = [
        (1, Done(8, ((2, 3),), Blame("user", "boom", host=2))),
        (1, Done(8, ((1, 2),))),
        (3, Done(8, ((3, 4),), Blame("user", "boom", host=3))),
        (0, Done(8, ((0, 1),), Blame("user", "other", host=0))),
    ]
    for source, report in reversed(parts) if turned else parts:
        if source:
            host.hear(source, up(report), 0)
        else:
            host.report(report, 0)
    assert said(host.end()) == [
        Done(8, ((0, 1),), Blame("user", "other", host=0)),
        Done(8, ((1, 2),)),
        Done(8, ((2, 4),), Blame("user", "boom", host=2)),
    ]


def test_trouble_and_loss_wait_for_nobody() -> None:
    host = relay()
    trouble = Trouble(2, 8, Blame("launch", "no memory", host=2))
    host.hear(1, up(trouble, Lost(2, 1)), 0)
    host.child_lost(3)
    host.child_lost(77)
    assert said(host.end()) == [trouble, Lost(2, 1), Lost(3, 0)]


def test_who_has_arrived_is_told_after_a_while_though_others_have_not() -> None:
    host = relay()
    host.tell(-1, order(1, gang(8)))
    host.tell(-1, order(2, AskStep(8)))
    host.report(Arrived(8, ((0, 1),)), 10)
    host.hear(1, up(Arrived(8, ((1, 3),))), 20)
    assert host.end() == []
    assert host.next_wakeup() == 10 + PATIENCE
    host.wakeup(10 + PATIENCE)
    assert said(host.end()) == [Arrived(8, ((0, 3),))]
    host.hear(3, up(Arrived(8, ((3, 4),))), 99)
    assert said(host.end()) == [Arrived(8, ((3, 4),))]


def test_an_arrival_is_not_told_after_its_end() -> None:
    host = relay(((1, ((1, 2),)),))
    host.tell(-1, order(1, gang(8, ((0, 2),)), AskStep(8)))
    host.report(Arrived(8, ((0, 1),)), 0)
    host.report(Done(8, ((0, 1),)), 0)
    host.hear(1, up(Done(8, ((1, 2),))), 0)
    assert said(host.end()) == [Done(8, ((0, 2),)), Arrived(8, ((0, 1),))]
    host.wakeup(PATIENCE)
    assert host.end() == []


def test_only_some_hosts_compile_a_code_so_patience_ends_the_waiting() -> None:
    host = relay()
    host.tell(-1, order(1, CompileStep(4, (0, 1))))
    for source, part in ((1, ((1, 3),)), (3, ((3, 4),))):
        host.hear(source, up(Compiled(4, 0, part), Compiled(4, 1, part)), 0)
    host.report(Compiled(4, 0, ((0, 1),)), 0)
    assert said(host.end()) == [Compiled(4, 0, ALL)]
    host.wakeup(PATIENCE)
    assert said(host.end()) == [Compiled(4, 1, ((1, 4),))]
    host.tell(-1, order(2, ForgetStep(plans=(4,))))
    assert not host._compiles


def test_a_leaf_passes_on_what_its_executor_says() -> None:
    host = relay(())
    host.tell(-1, order(1, gang(8), gang(9)))
    host.report(Done(8, ((0, 1),)), 0)
    host.report(Done(9, ((0, 1),)), 0)
    assert said(host.end()) == [Done(8, ((0, 1),)), Done(9, ((0, 1),))]
    assert not host._steps


def test_a_child_speaks_for_those_below_it_only() -> None:
    host = relay()
    host.tell(-1, order(1, gang(8)))
    for lie in (Done(8, ((1, 4),)), Beat(((0, 1),), 1), Trouble(3, 8, Blame("x", "y")), Done(8, ())):
        [close] = host.hear(1, up(lie), 0)
        assert isinstance(close, Close)
    [close] = host.hear(2, up(), 0)
    assert isinstance(close, Close)
    assert host.end() == []


# --------------------------------------------------------------------------------------------------------- be


def test_a_beat_says_up_to_where_all_have_seen_what_was_for_them() -> None:
    host = relay()
    host.tell(-1, order(1))
    host.tell(-1, order(2, hosts=((0, 3),)))  # not for host 3
    host.tell(-1, order(3, hosts=((0, 1),)))  # for nobody below
    host.hear(1, up(Beat(((1, 3),), 1)), 0)
    host.hear(3, up(Beat(((3, 4),), 1)), 0)
    assert host.next_wakeup() == PERIOD
    host.wakeup(PERIOD)
    assert said(host.end()) == [Beat(ALL, 1)]
    host.hear(1, up(Beat(((1, 3),), 2)), 0)
    host.wakeup(2 * PERIOD)
    assert said(host.end()) == [Beat(ALL, 3)]


def test_a_child_that_is_lost_or_has_never_spoken_is_not_vouched_for() -> None:
    host = relay()
    host.hear(1, up(Beat(((1, 3),), 0)), 0)
    host.wakeup(PERIOD)
    assert said(host.end()) == [Beat(((0, 3),), 0)]
    host.child_lost(1)
    host.wakeup(2 * PERIOD)
    assert said(host.end())[-1] == Beat(((0, 1),), 0)


# --------------------------------------------------------------------------------------------------------- se


def test_a_new_seat_ends_what_was_being_combined() -> None:
    host = relay()
    host.tell(-1, order(1, gang(8)))
    host.hear(1, up(Done(8, ((1, 3),))), 0)
    host.sit(Seat(0, 1, 2, 0, 5, ((3, ((3, 4),)),), ALL, 1), 0)
    [stale] = host.hear(1, up(Done(8, ((1, 3),))), 0)
    assert isinstance(stale, Tell)
    assert "refused" in stale.text
    host.report(Done(8, ((0, 1),)), 0)
    host.hear(3, Reports(0, 1, 2, (Done(8, ((3, 4),)),)), 0)
    assert host.end() == [Send((5,), Reports(0, 1, 2, (Done(8, ((0, 1), (3, 4))),)))]


def test_a_step_that_is_sent_again_waits_only_for_those_who_are_told_now() -> None:
    host = relay()
    host.hear(3, up(Done(8, ((3, 4),))), 0)  # it had the step by the old tree, and says so again
    assert said(host.end()) == [Done(8, ((3, 4),))]
    host.tell(-1, order(9, gang(8), hosts=((0, 3),)))
    host.hear(3, up(Done(8, ((3, 4),))), 0)
    assert said(host.end()) == [Done(8, ((3, 4),))]
    host.report(Done(8, ((0, 1),)), 0)
    host.hear(1, up(Done(8, ((1, 3),))), 0)
    assert said(host.end()) == [Done(8, ((0, 3),))]


def test_a_child_that_was_seated_first_is_heard_when_this_host_is() -> None:
    host = relay()
    early = Reports(0, 1, 2, (Done(8, ((3, 4),)),))
    assert host.hear(3, early, 0) == []
    assert host.end() == []
    host.sit(Seat(0, 1, 2, 0, -1, CHILDREN, ALL, 0), 0)
    assert said(host.end()) == [Done(8, ((3, 4),))]
    for _ in range(EARLY):
        assert host.hear(3, replace(early, tree=3), 0) == []
    [close] = host.hear(3, replace(early, tree=3), 0)
    assert isinstance(close, Close)


def test_seats_are_taken_in_order_and_by_their_host() -> None:
    host = relay()
    with pytest.raises(Illegal):
        host.sit(Seat(0, 1, 2, 1, -1, (), ALL, 0), 0)
    host.sit(Seat(0, 1, 3, 0, -1, (), ALL, 0), 0)
    [stale] = host.sit(Seat(0, 1, 2, 0, -1, (), ALL, 0), 0)
    assert isinstance(stale, Tell)
    assert "refused" in stale.text


def test_what_is_settled_is_forgotten() -> None:
    host = relay()
    for seq in range(1, 20 * SWEEP):
        host.tell(-1, order(seq, gang(seq), SendStep(-seq, 1, 1, ALL, -seq), settled=seq - 10))
    assert len(host._steps) <= 3 * SWEEP
    assert len(host._sends) <= 3 * SWEEP
