"""Relays pass an order to exactly the hosts that must see it, and combine the reports of a subtree into one."""

import pytest
from msgspec.structs import replace

from core import protocol as p
from core.fanout.relay import EARLY, SWEEP, Relay
from core.model.errors import Illegal
from core.model.spans import Spans

PERIOD, PATIENCE = 1_000, 50
CHILDREN = ((1, ((1, 3),)), (3, ((3, 4),)))  # 2 hangs below 1
ALL = ((0, 4),)


class RelayWithOutput(Relay):
    """A relay whose methods return the effects. `ours` are the orders for this host's executor."""

    def __init__(self) -> None:
        super().__init__(0, PERIOD, PATIENCE)
        self.ours: list[p.Ordered] = []

    def tell(self, peer: int, message: p.Ordered) -> list[p.Command]:
        out: list[p.Command] = []
        if self.ordered(peer, message, out):
            self.ours.append(message)
        return out

    def hear(self, peer: int, message: p.Reports, now: int) -> list[p.Command]:
        out: list[p.Command] = []
        self.reports(peer, message, now, out)
        return out

    def sit(self, seat: p.Seat, now: int) -> list[p.Command]:
        out: list[p.Command] = []
        self.seated(seat, now, out)
        return out

    def end(self) -> list[p.Command]:
        out: list[p.Command] = []
        self.flush(out)
        return out


def relay(children: tuple[tuple[int, Spans], ...] = CHILDREN) -> RelayWithOutput:
    """Return the relay of host 0, a root of tree 1 in epoch 1."""
    made = RelayWithOutput()
    assert made.sit(p.Seat(0, 1, 1, 0, -1, children, ALL, 0), 0) == []
    return made


def gang(seq: int, hosts: Spans = ALL) -> p.GangStep:
    return p.GangStep(seq, run=1, step=0, hosts=hosts)


def order(number: int, *steps: p.Step, hosts: Spans = ALL, settled: int = 0) -> p.Ordered:
    return p.Ordered(0, 1, 1, number, hosts, settled, (), (), steps)


def up(*reports: p.Report) -> p.Reports:
    return p.Reports(0, 1, 1, reports)


def reports_up(effects: list[p.Command]) -> list[p.Report]:
    """Return the reports in the one message to the parent."""
    if not effects:
        return []
    [send] = effects
    assert isinstance(send, p.Send)
    assert send.peers == (-1,)
    assert isinstance(send.message, p.Reports)
    return list(send.message.reports)


# --- down -------------------------------------------------------------------------------------------------


def test_an_order_goes_to_the_children_above_its_hosts_and_to_the_own_executor_if_it_is_for_it() -> None:
    host = relay()
    wide, narrow, own = (order(1, gang(1)), order(2, gang(2, ((2, 3),)), hosts=((2, 3),)), order(3, hosts=((0, 1),)))
    assert host.tell(-1, wide) == [p.Send((1, 3), wide)]
    assert host.tell(-1, narrow) == [p.Send((1,), narrow)]
    assert host.tell(-1, own) == []
    assert host.ours == [wide, own]
    [passed] = host.tell(-1, (again := order(4)))
    assert isinstance(passed, p.Send)
    assert passed.message is again


def test_late_orders_and_orders_by_another_path_are_dropped() -> None:
    host = relay()
    host.tell(-1, order(5))
    for stale in (order(5), replace(order(6), tree=0), replace(order(6), epoch=0), replace(order(6), island=1)):
        [refused] = host.tell(-1, stale)
        assert isinstance(refused, p.LogLine)
        assert "refused from peer -1" in refused.text
    assert len(host.ours) == 1


def test_only_the_parent_gives_orders() -> None:
    [close] = relay().tell(7, order(1))
    assert isinstance(close, p.Close)
    assert close.peer == 7


# --- up ---------------------------------------------------------------------------------------------------


def test_all_reports_of_one_turn_leave_as_one_message() -> None:
    host = relay()
    host.tell(-1, order(1, gang(8), gang(9)))
    for source, part in ((0, ((0, 1),)), (1, ((1, 3),))):
        host.hear(source, up(), 0)
        for seq in (8, 9):
            if source:
                host.hear(source, up(p.Done(seq, part)), 0)
            else:
                host.report(p.Done(seq, part), 0)
    host.hear(3, up(p.Done(8, ((3, 4),)), p.Done(9, ((3, 4),))), 0)
    assert reports_up(host.end()) == [p.Done(8, ALL), p.Done(9, ALL)]


def test_combined_reports_have_the_largest_size_and_the_sum_of_pieces() -> None:
    host = relay(((1, ((1, 2),)),))
    host.tell(-1, order(1, gang(8, ((0, 2),)), p.SendStep(9, 1, 1, ((0, 2),), transfer=9)))
    host.report(p.Done(8, ((0, 1),), None, (3, 9)), 0)
    host.report(p.PieceCounts(9, ((0, 1),), ((0, 2), (5, 1))), 0)
    host.hear(1, up(p.Done(8, ((1, 2),), None, (4, 7)), p.PieceCounts(9, ((1, 2),), ((1, 1), (5, 4)))), 0)
    assert reports_up(host.end()) == [
        p.Done(8, ((0, 2),), None, (4, 9)),
        p.PieceCounts(9, ((0, 2),), ((0, 2), (1, 1), (5, 5))),
    ]


@pytest.mark.parametrize("turned", [False, True])
def test_exceptions_are_the_same_whatever_order_the_reports_come_in(turned: bool) -> None:
    host = relay()
    host.tell(-1, order(1, gang(8)))
    parts = [
        (1, p.Done(8, ((2, 3),), p.Blame("user", "boom", host=2))),
        (1, p.Done(8, ((1, 2),))),
        (3, p.Done(8, ((3, 4),), p.Blame("user", "boom", host=3))),
        (0, p.Done(8, ((0, 1),), p.Blame("user", "other", host=0))),
    ]
    for source, report in reversed(parts) if turned else parts:
        if source:
            host.hear(source, up(report), 0)
        else:
            host.report(report, 0)
    assert reports_up(host.end()) == [
        p.Done(8, ((0, 1),), p.Blame("user", "other", host=0)),
        p.Done(8, ((1, 2),)),
        p.Done(8, ((2, 4),), p.Blame("user", "boom", host=2)),
    ]


def test_errors_and_losses_go_up_at_once() -> None:
    host = relay()
    trouble = p.HostFault(2, 8, p.Blame("launch", "no memory", host=2))
    host.hear(1, up(trouble, p.Lost(2, 1)), 0)
    host.child_lost(3)
    host.child_lost(77)
    assert reports_up(host.end()) == [trouble, p.Lost(2, 1), p.Lost(3, 0)]


def test_arrivals_are_reported_after_a_while_even_if_others_are_missing() -> None:
    host = relay()
    host.tell(-1, order(1, gang(8)))
    host.tell(-1, order(2, p.AskStep(8)))
    host.report(p.Arrived(8, ((0, 1),)), 10)
    host.hear(1, up(p.Arrived(8, ((1, 3),))), 20)
    assert host.end() == []
    assert host.next_wakeup() == 10 + PATIENCE
    host.wakeup(10 + PATIENCE)
    assert reports_up(host.end()) == [p.Arrived(8, ((0, 3),))]
    host.hear(3, up(p.Arrived(8, ((3, 4),))), 99)
    assert reports_up(host.end()) == [p.Arrived(8, ((3, 4),))]


def test_an_arrival_is_not_reported_after_its_end() -> None:
    host = relay(((1, ((1, 2),)),))
    host.tell(-1, order(1, gang(8, ((0, 2),)), p.AskStep(8)))
    host.report(p.Arrived(8, ((0, 1),)), 0)
    host.report(p.Done(8, ((0, 1),)), 0)
    host.hear(1, up(p.Done(8, ((1, 2),))), 0)
    assert reports_up(host.end()) == [p.Done(8, ((0, 2),)), p.Arrived(8, ((0, 1),))]
    host.wakeup(PATIENCE)
    assert host.end() == []


def test_reports_of_compiled_code_wait_only_for_a_while_because_not_all_hosts_compile_it() -> None:
    host = relay()
    host.tell(-1, order(1, p.CompileStep(4, (0, 1))))
    for source, part in ((1, ((1, 3),)), (3, ((3, 4),))):
        host.hear(source, up(p.Compiled(4, 0, part), p.Compiled(4, 1, part)), 0)
    host.report(p.Compiled(4, 0, ((0, 1),)), 0)
    assert reports_up(host.end()) == [p.Compiled(4, 0, ALL)]
    host.wakeup(PATIENCE)
    assert reports_up(host.end()) == [p.Compiled(4, 1, ((1, 4),))]
    host.tell(-1, order(2, p.ForgetStep(plans=(4,))))
    assert not host._compiles


def test_a_child_reports_only_for_hosts_below_it() -> None:
    host = relay()
    host.tell(-1, order(1, gang(8)))
    for lie in (p.Done(8, ((1, 4),)), p.Heartbeat(((0, 1),), 1), p.HostFault(3, 8, p.Blame("x", "y")), p.Done(8, ())):
        [close] = host.hear(1, up(lie), 0)
        assert isinstance(close, p.Close)
    [close] = host.hear(2, up(), 0)
    assert isinstance(close, p.Close)
    assert host.end() == []


# --- beats ------------------------------------------------------------------------------------------------


def test_a_beat_says_up_to_where_all_hosts_have_seen_their_messages() -> None:
    host = relay()
    host.tell(-1, order(1))
    host.tell(-1, order(2, hosts=((0, 3),)))  # not for host 3
    host.tell(-1, order(3, hosts=((0, 1),)))  # for no host below
    host.hear(1, up(p.Heartbeat(((1, 3),), 1)), 0)
    host.hear(3, up(p.Heartbeat(((3, 4),), 1)), 0)
    assert host.next_wakeup() == PERIOD
    host.wakeup(PERIOD)
    assert reports_up(host.end()) == [p.Heartbeat(ALL, 1)]
    host.hear(1, up(p.Heartbeat(((1, 3),), 2)), 0)
    host.wakeup(2 * PERIOD)
    assert reports_up(host.end()) == [p.Heartbeat(ALL, 3)]


def test_a_beat_leaves_out_a_child_that_is_lost_or_silent() -> None:
    host = relay()
    host.hear(1, up(p.Heartbeat(((1, 3),), 0)), 0)
    host.wakeup(PERIOD)
    assert reports_up(host.end()) == [p.Heartbeat(((0, 3),), 0)]
    host.child_lost(1)
    host.wakeup(2 * PERIOD)
    assert reports_up(host.end())[-1] == p.Heartbeat(((0, 1),), 0)


# --- seats ------------------------------------------------------------------------------------------------


def test_a_new_seat_drops_reports_that_were_being_combined() -> None:
    host = relay()
    host.tell(-1, order(1, gang(8)))
    host.hear(1, up(p.Done(8, ((1, 3),))), 0)
    host.sit(p.Seat(0, 1, 2, 0, 5, ((3, ((3, 4),)),), ALL, 1), 0)
    [stale] = host.hear(1, up(p.Done(8, ((1, 3),))), 0)
    assert isinstance(stale, p.LogLine)
    assert "refused" in stale.text
    host.report(p.Done(8, ((0, 1),)), 0)
    host.hear(3, p.Reports(0, 1, 2, (p.Done(8, ((3, 4),)),)), 0)
    assert host.end() == [p.Send((5,), p.Reports(0, 1, 2, (p.Done(8, ((0, 1), (3, 4))),)))]


def test_a_step_that_is_sent_again_waits_only_for_the_hosts_that_get_it_now() -> None:
    host = relay()
    host.hear(3, up(p.Done(8, ((3, 4),))), 0)  # it got the step by the old tree, and repeats its report
    assert reports_up(host.end()) == [p.Done(8, ((3, 4),))]
    host.tell(-1, order(9, gang(8), hosts=((0, 3),)))
    host.hear(3, up(p.Done(8, ((3, 4),))), 0)
    assert reports_up(host.end()) == [p.Done(8, ((3, 4),))]
    host.report(p.Done(8, ((0, 1),)), 0)
    host.hear(1, up(p.Done(8, ((1, 3),))), 0)
    assert reports_up(host.end()) == [p.Done(8, ((0, 3),))]


def test_reports_of_a_child_that_was_seated_first_wait_for_this_hosts_seat() -> None:
    host = relay()
    early = p.Reports(0, 1, 2, (p.Done(8, ((3, 4),)),))
    assert host.hear(3, early, 0) == []
    assert host.end() == []
    host.sit(p.Seat(0, 1, 2, 0, -1, CHILDREN, ALL, 0), 0)
    assert reports_up(host.end()) == [p.Done(8, ((3, 4),))]
    for _ in range(EARLY):
        assert host.hear(3, replace(early, tree=3), 0) == []
    [close] = host.hear(3, replace(early, tree=3), 0)
    assert isinstance(close, p.Close)


def test_seats_are_taken_in_order_and_only_by_their_host() -> None:
    host = relay()
    with pytest.raises(Illegal):
        host.sit(p.Seat(0, 1, 2, 1, -1, (), ALL, 0), 0)
    host.sit(p.Seat(0, 1, 3, 0, -1, (), ALL, 0), 0)
    [stale] = host.sit(p.Seat(0, 1, 2, 0, -1, (), ALL, 0), 0)
    assert isinstance(stale, p.LogLine)
    assert "refused" in stale.text


def test_settled_reports_are_forgotten() -> None:
    host = relay()
    for seq in range(1, 20 * SWEEP):
        host.tell(-1, order(seq, gang(seq), p.SendStep(-seq, 1, 1, ALL, -seq), settled=seq - 10))
    assert len(host._steps) <= 3 * SWEEP
    assert len(host._sends) <= 3 * SWEEP
