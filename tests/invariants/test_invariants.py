"""Each checker accepts a correct world, and says what is wrong with a wrong one."""

from collections.abc import Iterable, Sequence

import pytest

from core.model.spans import Spans
from core.protocol.messages import Blame
from tests.invariants import *

Feed = Sequence[Observation]

LOST = Blame("host-lost", "it is gone")


def world(*seen: Observation) -> list[Observation]:
    """Return observations of two hosts with two devices of 100 bytes each, on island 0 in epoch 1, and these."""
    return [
        HostJoined(0, ((0, 2),), 100), HostJoined(1, ((2, 4),), 100),
        HostSeated(0, 0, 1), HostSeated(1, 0, 1), EpochFormed(0, 1, ((0, 2),)),
        *seen,
    ]  # fmt: skip


def entered(seq: int, hosts: Spans = ((0, 2),), devices: Spans = ((0, 4),), epoch: int = 1) -> Entered:
    return Entered(seq, 1, 0, 0, epoch, hosts, devices)


def launched(host: int, seq: int, epoch: int = 1, **more: object) -> Launched:
    devices = ((2 * host, 2 * host + 2),)
    return Launched(host, seq, epoch, devices, **more)  # type: ignore[arg-type]


def gang_run(host: int, seq: int) -> list[Observation]:
    devices = ((2 * host, 2 * host + 2),)
    return [Started(host, seq, devices), FinishedSeen(host, seq, devices)]


def check(checkers: Iterable[Checker], feed: Feed, rest: bool = True) -> None:
    checks = Checks(list(checkers))
    for now, seen in enumerate(feed):
        checks.saw(seen, now)
        checks.look(now)
    if rest:
        checks.at_rest(len(feed))


TWO_GANGS = world(
    RunSubmitted(1, 1), BufferHeld(10, "client 1"),
    entered(1), entered(2),
    launched(0, 1, outputs=(9,)), launched(0, 2, inputs=(9,), outputs=(10,)),
    launched(1, 1, outputs=(9,)), launched(1, 2, inputs=(9,), outputs=(10,)),
    *gang_run(0, 1), *gang_run(1, 1), *gang_run(1, 2), *gang_run(0, 2),
    BufferFreed(0, 9), BufferFreed(1, 9),
    RunEndSeen(1, 1),
)  # fmt: skip


def test_a_correct_world_passes_all_checkers() -> None:
    check(everything(), TWO_GANGS)


def test_a_lost_host_excuses_its_own_steps_and_the_epoch_gives_up_its_gangs() -> None:
    check(
        everything(),
        world(
            RunSubmitted(1, 1), entered(1), launched(0, 1, outputs=(9,)), Started(0, 1, ((0, 2),)),
            HostLost(1),
            Abandoned(1), FinishedSeen(0, 1, ((0, 2),)), BufferLost(9), BufferFreed(0, 9), RunEndSeen(1, 1, LOST),
            HostSeated(0, 0, 2), EpochFormed(0, 2, ((0, 1),)), Obeyed(0, 0, 2, 1),
            Entered(2, 2, 0, 0, 2, ((0, 1),), ((0, 2),)), launched(0, 2, epoch=2), *gang_run(0, 2),
        ),
    )  # fmt: skip


def test_a_violation_says_when_and_what_came_before() -> None:
    with pytest.raises(Violation, match="every run ends") as caught:
        check([RunsEnd()], [RunSubmitted(1, 1), RunEndSeen(1, 1), RunEndSeen(1, 1)])
    assert caught.value.now == 2
    assert caught.value.recent == (RunSubmitted(1, 1), RunEndSeen(1, 1), RunEndSeen(1, 1))


def test_a_checker_gets_only_the_kinds_it_asked_for() -> None:
    class Deaf(Checker):
        name = "deaf"
        sees = (RunEndSeen,)

        def saw(self, seen: Observation, now: int) -> None:
            assert isinstance(seen, RunEndSeen)

    check([Deaf()], TWO_GANGS)


PLANTED: list[tuple[str, type[Checker], Feed, str]] = [
    # --- gang atomicity
    ("one host skips its launch", GangAtomicity,
     world(entered(1), launched(0, 1)), "not launched on hosts 1 of 0-1"),
    ("no host launches it", GangAtomicity, world(entered(1)), "not launched on hosts 0-1"),
    ("a host that was lost leaves it half launched", GangAtomicity,
     world(entered(1), launched(0, 1), HostLost(1)), "no end of an epoch abandoned it"),
    ("a host that is back skips its launch", GangAtomicity,
     world(HostLost(0), HostJoined(0, ((0, 2),), 100), entered(1, ((0, 1),), ((0, 2),))),
     "not launched on hosts 0"),
    ("launched out of nothing", GangAtomicity, world(launched(0, 7)), "in no order"),
    ("launched twice", GangAtomicity, world(entered(1), launched(0, 1), launched(0, 1)), "a second time"),
    ("launched twice, when it is complete", GangAtomicity,
     world(entered(1), launched(0, 1), launched(1, 1), launched(1, 1)), "a second time"),
    ("launched by a stranger", GangAtomicity,
     world(entered(1, ((0, 1),), ((0, 2),)), launched(1, 1)), "for hosts 0"),
    ("launched on other devices", GangAtomicity,
     world(entered(1, ((0, 1),), ((0, 1),)), launched(0, 1)), "not all its own"),
    ("launched on too few devices", GangAtomicity,
     world(entered(1), launched(0, 1), Launched(1, 1, 1, ((2, 3),))), "on devices 3"),
    ("entered twice", GangAtomicity, world(entered(1), entered(1)), "entered an order twice"),
    # --- one order
    ("two gangs in opposite orders", OneOrder,
     world(entered(1), entered(2), launched(0, 1), launched(0, 2), launched(1, 2)),
     "launched gang 2 before gang 1"),
    ("an old gang comes again", OneOrder,
     world(entered(1), entered(2), launched(0, 1), launched(0, 2), launched(0, 1)), "gang 1 after gang 2"),
    ("the sequence goes back", OneOrder, world(entered(2), entered(1)), "must only grow"),
    # --- double booking
    ("two gangs on a device at once", DoubleBooking,
     world(launched(0, 1), launched(0, 2), Started(0, 1, ((0, 2),)), Started(0, 2, ((1, 2),))),
     "while it runs gang 1"),
    ("a device goes out of turn", DoubleBooking,
     world(launched(0, 1), launched(0, 2), Started(0, 2, ((0, 1),))), "before gang 1"),
    ("a gang runs unlaunched", DoubleBooking, world(Started(0, 1, ((0, 1),))), "not launched on it"),
    ("a gang runs twice", DoubleBooking,
     world(launched(0, 1), *gang_run(0, 1), Started(0, 1, ((0, 1),))), "or is over"),
    ("an end without a start", DoubleBooking,
     world(launched(0, 1), FinishedSeen(0, 1, ((0, 1),))), "does not run"),
    ("a device hangs", DoubleBooking, world(launched(0, 1), Started(0, 1, ((0, 2),))), "still runs gang 1"),
    ("a device never gets to it", DoubleBooking, world(launched(0, 1)), "has not started gang 1"),
    # --- memory
    ("too much", MemoryChecker, world(Allocated(0, "buffer 1", 60), Allocated(0, "gang 1", 41)), "makes it 101"),
    ("too much after a free", MemoryChecker,
     world(Allocated(0, "a", 60), Allocated(0, "b", 40), Released(0, "b"), Allocated(0, "c", 41)),
     "makes it 101"),
    ("allocated twice", MemoryChecker, world(Allocated(0, "a", 1), Allocated(0, "a", 1)), "twice"),
    ("released twice", MemoryChecker,
     world(Allocated(0, "a", 1), Released(0, "a"), Released(0, "a")), "does not have"),
    ("on a device that is gone", MemoryChecker, world(HostLost(1), Allocated(2, "a", 1)), "not there"),
    ("scratch stays", MemoryChecker, world(Allocated(0, "gang 3", 1)), "scratch of gang 3"),
    # --- buffers
    ("freed while held", BufferChecker,
     world(BufferMade(0, 1), BufferHeld(1, "client 1"), BufferFreed(0, 1)), "held by client 1"),
    ("freed while one of two references is left", BufferChecker,
     world(BufferMade(0, 1), BufferHeld(1, "run 1"), BufferHeld(1, "run 1"), BufferLetGo(1, "run 1"),
           BufferFreed(0, 1)), "held by run 1"),
    ("freed while a gang reads it", BufferChecker,
     world(BufferMade(0, 1), launched(0, 1, inputs=(1,)), BufferFreed(0, 1)), "while gang 1 uses it"),
    ("freed while it is sent", BufferChecker,
     world(BufferMade(0, 1), BufferUsed(0, 1, "send 4"), BufferFreed(0, 1)), "while send 4 uses it"),
    ("freed when half of the host's devices are done", BufferChecker,
     world(BufferMade(0, 1), launched(0, 1, inputs=(1,)), FinishedSeen(0, 1, ((0, 1),)), BufferFreed(0, 1)),
     "while gang 1 uses it"),
    ("freed twice", BufferChecker, world(BufferMade(0, 1), BufferFreed(0, 1), BufferFreed(0, 1)), "freed before"),
    ("never freed", BufferChecker, world(BufferMade(0, 1)), "has no holder"),
    ("never freed when its holder went", BufferChecker,
     world(BufferMade(0, 1), BufferHeld(1, "client 1"), BufferLetGo(1, "client 1")), "has no holder"),
    ("read where it is not", BufferChecker,
     world(BufferMade(0, 1), launched(1, 1, inputs=(1,))), "where it is not"),
    ("read after it was donated", BufferChecker,
     world(BufferMade(0, 1), launched(0, 1, inputs=(1,), outputs=(2,), donated=(1,)),
           launched(0, 2, inputs=(1,))),
     "where it is not"),
    ("donated while held", BufferChecker,
     world(BufferMade(0, 1), BufferHeld(1, "client 1"), launched(0, 1, inputs=(1,), donated=(1,))),
     "held by client 1"),
    ("donated while it is sent", BufferChecker,
     world(BufferMade(0, 1), BufferUsed(0, 1, "send 4"), launched(0, 1, inputs=(1,), donated=(1,))),
     "while send 4"),
    ("made twice", BufferChecker, world(BufferMade(0, 1), launched(0, 1, outputs=(1,))), "made twice"),
    ("let go twice", BufferChecker,
     world(BufferHeld(1, "a"), BufferLetGo(1, "a"), BufferLetGo(1, "a")), "does not hold"),
    ("used for ever", BufferChecker, world(BufferMade(0, 1), BufferUsed(0, 1, "send 4")), "still used by send 4"),
    ("unused twice", BufferChecker,
     world(BufferMade(0, 1), BufferUsed(0, 1, "send 4"), BufferUnused(0, 1, "send 4"),
           BufferUnused(0, 1, "send 4")),
     "did not use"),
    # --- runs end
    ("a run is forgotten", RunsEnd,
     [RunSubmitted(1, 1), RunSubmitted(1, 2), RunEndSeen(1, 2)], "run 1 .* never ended"),
    ("a run ends twice", RunsEnd,
     [RunSubmitted(1, 1), RunEndSeen(1, 1, LOST), RunEndSeen(1, 1)], "first time with .*gone"),
    ("an unknown run ends", RunsEnd, [RunEndSeen(1, 1)], "never submitted"),
    ("a run is taken twice", RunsEnd,
     [RunSubmitted(1, 1), RunEndSeen(1, 1), RunSubmitted(1, 1)], "taken twice"),
    ("another client's run is forgotten", RunsEnd, [RunSubmitted(1, 1), ClientLost(2)], "never ended"),
    # --- epochs
    ("a stale host launches", Epochs,
     world(HostSeated(0, 0, 2), entered(1), launched(0, 1)), "in epoch 2, launched gang 1 of epoch 1"),
    ("a member is still in the old epoch", Epochs,
     world(HostSeated(1, 0, 2), EpochFormed(0, 2, ((0, 2),))), "while host 0 was in epoch 1"),
    ("a host obeys a stale message", Epochs,
     world(HostSeated(0, 0, 2), Obeyed(0, 0, 1, 5)), "message 5 of epoch 1"),
    ("a host obeys a message twice", Epochs,
     world(Obeyed(0, 0, 1, 5), Obeyed(0, 0, 1, 5)), "message 5 after 5"),
    ("a message overtakes another, past a new tree", Epochs,
     world(Obeyed(0, 0, 1, 5), HostSeated(0, 0, 1), Obeyed(0, 0, 1, 4)), "message 4 after 5"),
    ("a host launches before it has a seat", Epochs,
     world(HostLost(0), HostJoined(0, ((0, 2),), 100), launched(0, 1)), "without a seat"),
    ("a member comes back into the old epoch", Epochs,
     world(HostLost(0), HostSeated(1, 0, 2), EpochFormed(0, 2, ((0, 2),)), HostSeated(0, 0, 1),
           launched(0, 1)),
     "a member of epoch 2"),
    ("a host goes back", Epochs, world(HostSeated(0, 0, 2), HostSeated(0, 0, 1)), "went back"),
    ("stale reports are heeded", Epochs,
     world(HostSeated(0, 0, 2), HostSeated(1, 0, 2), EpochFormed(0, 2, ((0, 2),)), ReportsApplied(0, 1)),
     "of epoch 1 .* in 2"),
    ("an epoch comes back", Epochs, world(EpochFormed(0, 1, ((0, 2),))), "formed epoch 1 after 1"),
    ("a gang enters for a host that is no member", Epochs,
     world(HostSeated(0, 0, 2), EpochFormed(0, 2, ((0, 1),)), entered(1, epoch=2)), "with hosts 0$"),
    ("a gang enters in the old epoch", Epochs,
     world(HostSeated(0, 0, 2), EpochFormed(0, 2, ((0, 1),)), entered(1, ((0, 1),), ((0, 2),))),
     "gang 1 of epoch 1"),
]  # fmt: skip


@pytest.mark.parametrize(("checker", "feed", "says"), [case[1:] for case in PLANTED], ids=[case[0] for case in PLANTED])
def test_each_wrong_world_is_found(checker: type[Checker], feed: Feed, says: str) -> None:
    with pytest.raises(Violation, match=says):
        check([checker()], feed)
    with pytest.raises(Violation):
        check(everything(), feed)  # another checker may find it first, but none hides it


GOOD: list[tuple[str, type[Checker], Feed]] = [
    ("placeholders are launches", GangAtomicity,
     world(entered(1), launched(0, 1, placeholders=True), launched(1, 1, placeholders=True))),
    ("a gang whose hosts are all gone", GangAtomicity, world(entered(1), HostLost(0), HostLost(1))),
    ("neighbours that share no device pass each other", OneOrder,
     world(entered(1, ((0, 1),), ((0, 1),)), entered(2, ((0, 1),), ((1, 2),)),
           Launched(0, 2, 1, ((1, 2),)), Launched(0, 1, 1, ((0, 1),)))),
    ("what an epoch gave up is passed over", OneOrder,
     world(entered(1), entered(2), Abandoned(1), launched(0, 2), launched(1, 2))),
    ("a host that comes back owes nothing", OneOrder,
     world(entered(1), HostLost(0), HostJoined(0, ((0, 2),), 100), entered(2), launched(0, 2))),
    ("what an epoch gave up is never started", DoubleBooking,
     world(launched(0, 1), launched(0, 2), Abandoned(1), *gang_run(0, 2), FinishedSeen(0, 1, ((0, 2),)))),
    ("a host that comes back starts empty", DoubleBooking,
     world(launched(0, 1), Started(0, 1, ((0, 2),)), HostLost(0), HostJoined(0, ((0, 2),), 100),
           launched(0, 2), *gang_run(0, 2))),
    ("memory is there again when its host is", MemoryChecker,
     world(Allocated(0, "a", 90), HostLost(0), HostJoined(0, ((0, 2),), 100), Allocated(0, "a", 90))),
    ("to the last byte", MemoryChecker, world(Allocated(0, "a", 60), Allocated(0, "b", 40))),
    ("a donated input goes with its launch", BufferChecker,
     world(BufferMade(0, 1), launched(0, 1, inputs=(1,)),
           launched(0, 2, inputs=(1,), outputs=(2,), donated=(1,)), *gang_run(0, 1), *gang_run(0, 2),
           BufferFreed(0, 2))),
    ("placeholders read what is not there", BufferChecker,
     world(launched(0, 1, inputs=(1,), placeholders=True), *gang_run(0, 1))),
    ("a lost buffer is freed though held", BufferChecker,
     world(BufferMade(0, 1), BufferHeld(1, "client 1"), BufferLost(1), BufferFreed(0, 1),
           BufferLetGo(1, "client 1"))),
    ("a host is lost with all it had", BufferChecker,
     world(BufferMade(0, 1), BufferUsed(0, 1, "send 4"), HostLost(0))),
    ("a lost client is told nothing", RunsEnd, [RunSubmitted(1, 1), ClientLost(1)]),
    ("a new epoch counts its messages anew", Epochs,
     world(Obeyed(0, 0, 1, 5), HostSeated(0, 0, 2), Obeyed(0, 0, 2, 1))),
    ("reports of the next epoch, while it forms", Epochs, world(ReportsApplied(0, 2))),
]  # fmt: skip


@pytest.mark.parametrize(("checker", "feed"), [case[1:] for case in GOOD], ids=[case[0] for case in GOOD])
def test_each_right_world_passes(checker: type[Checker], feed: Feed) -> None:
    check([checker()], feed)


# --- transfers --------------------------------------------------------------------------------------------

OPEN = TransferOpened(7, 1, ((0, 0, 30), (0, 1, 20)))


def chunk(piece: int, offset: int, nbytes: int) -> list[Observation]:
    return [Granted(7, 0, 1, nbytes), ChunkSent(7, 0, 1, nbytes), ChunkArrived(7, 0, 1, piece, offset, nbytes)]


def test_a_correct_transfer_passes() -> None:
    feed = [OPEN, *chunk(0, 0, 20), *chunk(1, 0, 20), *chunk(0, 20, 10), TransferOver(7, 1)]
    check([TransferChecker(pool=20)], feed)


def test_a_sparse_transfer_takes_as_much_as_arrives() -> None:
    check([TransferChecker()], [TransferOpened(7, 1, (), sparse=True), *chunk(5, 0, 20), TransferOver(7, 1)])


def test_a_spoilt_transfer_gives_its_credit_back() -> None:
    spoilt = [OPEN, Granted(7, 0, 1, 50), TransferOver(7, 1, LOST)]
    check([TransferChecker(pool=50)], [*spoilt, TransferOpened(8, 1, ()), Granted(8, 0, 1, 50), TransferOver(8, 1)])


def test_what_is_short_is_granted_beside_the_pool() -> None:
    promised = [OPEN, Granted(7, 0, 1, 40), TransferOpened(8, 1, ((2, 0, 60),)), Granted(8, 2, 1, 50)]
    check([TransferChecker(pool=50, short=50)], promised, rest=False)
    with pytest.raises(Violation, match="90 bytes of a pool of 50"):
        check([TransferChecker(pool=50, short=49)], promised, rest=False)


def test_credit_of_a_lost_sender_may_be_granted_to_another() -> None:
    promised = [OPEN, Granted(7, 0, 1, 40), TransferOpened(8, 1, ((2, 0, 40),))]
    check([TransferChecker(pool=64)], [*promised, PeerLost(1, 0), Granted(8, 2, 1, 40)], rest=False)
    check([TransferChecker(pool=64)], [*promised, SpoiltReceived(7, 0, 1), Granted(8, 2, 1, 40)], rest=False)


@pytest.mark.parametrize(
    ("feed", "says"),
    [
        ([OPEN, *chunk(0, 0, 30), *chunk(1, 0, 20), ChunkArrived(7, 0, 1, 1, 0, 20)], "offset 0, after 20"),
        ([OPEN, *chunk(0, 0, 10), *chunk(0, 20, 10)], "offset 20, after 10"),
        ([OPEN, *chunk(0, 0, 31)], "more than the 30"),
        ([OPEN, *chunk(3, 0, 1)], "more than the 0"),
        ([OPEN, *chunk(0, 0, 30), TransferOver(7, 1)], "0 of 20 bytes of piece 1"),
        ([OPEN, TransferOver(7, 1, LOST), *chunk(0, 0, 30)], "not open"),
        ([OPEN, OPEN], "opened twice"),
        ([OPEN, TransferOver(7, 1, LOST), TransferOver(7, 1, LOST)], "was not open"),
        ([OPEN, Granted(7, 0, 1, 10), ChunkSent(7, 0, 1, 11)], "1 bytes were sent beyond the credit"),
        ([OPEN, Granted(7, 0, 1, 40), Granted(7, 2, 1, 40)], "80 bytes of a pool of 64"),
        ([OPEN], "still open at 1"),
    ],
)
def test_a_wrong_transfer_is_found(feed: Feed, says: str) -> None:
    with pytest.raises(Violation, match=says):
        check([TransferChecker(pool=64)], feed)


# --- the controller's counters -------------------------------------------------------------------------------


class FakeLedger:
    def __init__(self) -> None:
        self.resident, self.committed = 0, 0

    def counters(self) -> list[tuple[Spans, int, int, int]]:
        return [(((0, 4),), self.resident, self.committed, 100)]


class FakeController:
    def __init__(self) -> None:
        self.ledger = FakeLedger()
        self.runs: dict[int, str] = {}
        self.in_flight: dict[int, str] = {}
        self.kept, self.counted, self.buffers = 0, 0, 0

    def left(self) -> dict[str, int]:
        return {"runs": len(self.runs), "operations": len(self.in_flight), "buffers": self.buffers}

    def audit(self) -> list[tuple[str, int, int]]:
        return [("references of buffer 7", self.kept, self.counted)]


def test_counters_that_add_up_pass() -> None:
    controller = FakeController()
    checks = Checks([CountersAddUp(controller)])
    controller.kept = controller.counted = controller.buffers = 2
    controller.ledger.resident, controller.ledger.committed = 40, 60
    checks.look(1)
    checks.at_rest(2)  # buffers that are held may stay


def test_a_lost_decrement_is_found() -> None:
    controller = FakeController()
    controller.kept = 1
    with pytest.raises(Violation, match="buffer 7: the counter says 1, a recount gives 0"):
        Checks([CountersAddUp(controller)]).look(1)


@pytest.mark.parametrize(("resident", "committed"), [(-1, 0), (50, 40), (50, 101)])
def test_impossible_levels_of_memory_are_found(resident: int, committed: int) -> None:
    controller = FakeController()
    controller.ledger.resident, controller.ledger.committed = resident, committed
    with pytest.raises(Violation, match="each should be at most the next"):
        Checks([CountersAddUp(controller)]).look(1)


def test_leftovers_at_rest_are_found() -> None:
    controller = FakeController()
    checks = Checks([CountersAddUp(controller)])
    controller.runs[1] = "running"
    with pytest.raises(Violation, match="1 runs are left"):
        checks.at_rest(1)
    controller.runs.clear()
    controller.in_flight[1] = "gang"
    with pytest.raises(Violation, match="1 operations are left"):
        checks.at_rest(1)
    controller.in_flight.clear()
    controller.ledger.resident = controller.ledger.committed = 10
    with pytest.raises(Violation, match="no buffer is alive"):
        checks.at_rest(1)
