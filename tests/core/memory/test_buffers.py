"""Tests logical buffers: exact reference counts, donation, blames, spilling, and the choice of buffers to spill."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.memory.buffers import TABLE, Buffer, Buffers
from core.memory.ledger import LacksMemory, Ledger
from core.memory.spill import HostBytes, Spill
from core.model.atoms import Atoms
from core.model.errors import Illegal
from core.model.place import line
from core.protocol.messages import Blame
from tests.laws import examples

from .memory_world import hosts_of

ANN, BOB = 1, 2
LOST, LATER = Blame("host-lost", "host 3"), Blame("user", "nan")


def one_buffer(*, handle: bool = True, promise: bool = True) -> Buffers:
    buffers = Buffers()
    buffers.create(7, ANN, 70, 0, 100, handle=handle, promise=promise)
    return buffers


def ids(gone: list[Buffer]) -> list[int]:
    return [buffer.id for buffer in gone]


# --- one count --------------------------------------------------------------------------------------------


def test_a_result_that_is_never_made_takes_no_memory_and_keeps_its_blame() -> None:
    buffers = one_buffer()
    assert buffers.never_made(7, LOST) == []
    found = buffers[7]
    assert found.blame == LOST
    assert not found.on_device
    assert ids(buffers.release(ANN, 70)) == [7]


def test_the_first_blame_is_kept() -> None:
    buffers = one_buffer()
    buffers.poison(7, LOST)
    buffers.poison(7, LATER)
    buffers.filled(7)  # it was being made
    assert (buffers[7].state, buffers[7].blame) == ("poisoned", LOST)


def test_releasing_a_buffer_that_is_not_held_is_illegal_and_changes_nothing() -> None:
    buffers = one_buffer()
    for wrong in (
        lambda: buffers.let_go(7),
        lambda: buffers.let_go(8),
        lambda: buffers.release(BOB, 70),
        lambda: buffers.use(7),
        lambda: buffers.create(7, BOB, 1, 0, 1),
        lambda: buffers.create(8, ANN, 70, 0, 1),
        lambda: buffers.consumed(7),
        lambda: buffers.returned(7),
    ):
        with pytest.raises(Illegal):
            wrong()
    assert (len(buffers), buffers[7].references) == (1, 2)
    buffers.hold(7)
    buffers.use(7)
    with pytest.raises(Illegal):
        buffers.let_go(7)  # the run still uses it
    assert ids(buffers.let_go(7, used=True)) == []


deeds = st.lists(
    st.tuples(
        st.sampled_from(["create", "hold", "let_go", "release", "ordered", "gone", "donate"]),
        st.integers(0, 4),
        st.sampled_from([ANN, BOB]),
    ),
    max_size=60,
)


@examples(200)
@given(deeds)
def test_the_count_reaches_zero_exactly_when_the_last_holder_releases(story: list[tuple[str, int, int]]) -> None:
    """Checked against sets of holders, in which each has a name."""
    buffers, holders = Buffers(), dict[int, set[str]]()
    owner: dict[int, int] = {}
    made = 0

    def without(who: str, chosen: list[int]) -> list[int]:
        for ident in chosen:
            holders[ident].remove(who)
        return [ident for ident in chosen if not holders[ident]]

    for deed, pick, client in story:
        live = [ident for ident, who in holders.items() if who]
        ident = live[pick % len(live)] if live else -1
        mine = owner.get(ident, 0)
        runs = sorted(who for who in holders.get(ident, set()) if who.startswith("run"))
        gone: list[int] = []
        told: list[Buffer] = []
        if deed == "create":
            made += 1
            buffers.create(made, client, made, 0, 1)
            holders[made], owner[made] = {"handle", "promise"}, client
        elif deed == "hold" and live:
            buffers.hold(ident)
            holders[ident].add(f"run {len(runs)}")
        elif deed == "let_go" and runs:
            gone, told = without(runs[-1], [ident]), buffers.let_go(ident)
        elif deed == "release" and live and "handle" in holders[ident]:
            gone, told = without("handle", [ident]), buffers.release(mine, ident)
        elif deed == "donate" and runs and "handle" in holders[ident]:
            gone, told = without("handle", [ident]), buffers.release(mine, ident)
            assert buffers.is_sole(ident, 1) == (len(runs) == 1)
        elif deed == "ordered" and live and "promise" in holders[ident]:
            gone, told = without("promise", [ident]), buffers.ordered(ident, 1)
        elif deed == "gone":
            owned = [i for i in sorted(live) if owner[i] == client and "handle" in holders[i]]
            gone, told = without("handle", owned), buffers.client_gone(client)
        assert ids(told) == gone
        assert {buffer.id: buffer.references for buffer in buffers} == {
            i: len(who) for i, who in holders.items() if who
        }


# --- donation ---------------------------------------------------------------------------------------------


def test_a_donation_takes_effect_only_if_the_buffer_has_no_other_holder() -> None:
    buffers = one_buffer(promise=False)
    buffers.hold(7)
    assert not buffers.is_sole(7, 100)  # the client's handle
    buffers.hold(7)
    buffers.release(ANN, 70)
    assert not buffers.is_sole(7, 100)  # another run reads it
    buffers.let_go(7)
    assert buffers.is_sole(7, 100)
    assert not buffers.is_sole(7, 60)  # smaller than what the plan says


def test_memory_of_a_bound_is_not_taken_over_before_the_size_is_known() -> None:
    buffers = Buffers()
    buffers.create(7, ANN, 70, 0, 100, exact=False)
    buffers.hold(7)
    buffers.release(ANN, 70)
    assert not buffers.is_sole(7, 100)
    buffers.shrink(7, 40)
    assert not buffers.is_sole(7, 100)
    assert buffers.is_sole(7, 40)


# --- spilling ---------------------------------------------------------------------------------------------


class SpillRig:
    """Six devices of 100 bytes on three hosts with this much host memory. Buffers are on devices 0-3."""

    def __init__(self, *sizes: int, dram: int = 1000, disk: int = 0) -> None:
        self.atoms, self.buffers = Atoms(), Buffers()
        self.ledger = Ledger(self.atoms, lambda _: 100)
        self.host, self.disk = HostBytes(hosts_of, lambda _: dram), HostBytes(hosts_of, lambda _: disk)
        self.spill = Spill(self.atoms, self.ledger, self.buffers, self.host, self.disk)
        self.key = self.atoms.intern(line(0, 0, 4))
        for ident, nbytes in enumerate(sizes):
            assert self.ledger.admit(-1, None, [(self.key, nbytes)]) is None
            self.buffers.create(ident, ANN, ident + 10, self.key, nbytes, promise=False)
            self.buffers.filled(ident)

    def short(self, nbytes: int) -> LacksMemory:
        answer = self.ledger.admit(-1, None, [(self.key, nbytes)])
        assert isinstance(answer, LacksMemory)
        return answer

    def victims(self, nbytes: int, keep: tuple[int, ...] = ()) -> list[int] | None:
        found = self.spill.victims(self.short(nbytes).missing, keep)
        return None if found is None else [buffer.id for buffer in found]

    def resident(self) -> int:
        return self.ledger.counters()[0][1]

    def on_hosts(self) -> dict[int, int]:
        return {host: used for hosts, used in self.host.counters() for low, high in hosts for host in range(low, high)}


def test_the_least_recently_used_buffers_are_spilled_first() -> None:
    rig = SpillRig(30, 30, 30)
    rig.buffers.touch(0, seq=1)
    assert rig.victims(40) == [1]
    assert rig.victims(60) == [1, 2]
    assert rig.victims(60, keep=(2,)) == [1, 0]


def test_a_buffer_that_is_moving_or_unfilled_is_not_idle_but_a_waiting_run_does_not_keep_it() -> None:
    rig = SpillRig(30, 30, 30)
    for ident in (0, 1):
        rig.buffers.hold(ident)
    rig.buffers.use(1)  # that run is admitted
    assert rig.victims(40) == [0]
    assert rig.victims(70) == [0, 2]
    assert rig.victims(100) is None
    assert rig.spill.busy(rig.short(100).missing)
    rig.buffers.let_go(1, used=True)
    assert not rig.spill.busy(rig.short(100).missing)
    assert rig.victims(100) == [0, 2, 1]


def test_a_spilled_buffer_is_counted_where_it_is_and_can_be_restored() -> None:
    rig = SpillRig(60)
    buffer = rig.buffers[0]
    rig.spill.begin(buffer)
    assert (rig.resident(), rig.on_hosts()) == (60, {0: 120, 1: 120})
    assert rig.victims(50) == []  # it is being spilled already
    rig.spill.spilled(buffer)
    assert (rig.resident(), buffer.state) == (0, "spilled")
    assert rig.ledger.admit(1, None, [(rig.key, 60)]) is None
    rig.spill.restore(buffer)
    assert (rig.resident(), rig.on_hosts()) == (60, {0: 120, 1: 120})
    rig.spill.restored(buffer)
    assert (buffer.state, rig.on_hosts()) == ("ready", {0: 0, 1: 0})


@pytest.mark.parametrize("taken_first", [False, True])
def test_a_donated_buffer_is_restored_into_the_runs_own_memory(taken_first: bool) -> None:
    rig = SpillRig(60)
    buffer = rig.buffers.hold(0)
    rig.buffers.release(ANN, 10)
    rig.spill.begin(buffer)
    assert not rig.buffers.is_sole(0, 60)  # not while it is being spilled
    rig.spill.spilled(buffer)
    rig.ledger.admit(1, None, [(rig.key, 60)])
    if taken_first:
        rig.buffers.consumed(0)
        rig.spill.restore(buffer)
    else:
        rig.spill.restore(buffer)
        rig.buffers.consumed(0)
    rig.spill.restored(buffer)
    for gone in rig.buffers.let_go(0):
        rig.spill.drop(gone)
    assert (rig.resident(), rig.on_hosts()) == (60, {0: 0, 1: 0})  # the run frees the memory, or passes it on


@pytest.mark.parametrize("blame", [None, LOST])
@pytest.mark.parametrize("coming", [False, True])
def test_a_buffer_that_is_released_during_its_copy_is_freed_after_it(coming: bool, blame: Blame | None) -> None:
    rig = SpillRig(60)
    buffer = rig.buffers[0]
    rig.spill.begin(buffer)
    if coming:
        rig.spill.spilled(buffer)
        rig.ledger.admit(1, None, [(rig.key, 60)])
        rig.spill.restore(buffer)
    if blame:
        rig.buffers.poison(0, blame)
    for gone in rig.buffers.release(ANN, 10):
        rig.spill.drop(gone)
    assert rig.resident() == 60
    missing = rig.short(50).missing
    assert rig.spill.busy(missing)
    assert rig.spill.victims(missing) == ()
    (rig.spill.restored if coming else rig.spill.spilled)(buffer)
    assert (rig.resident(), rig.on_hosts()) == (0, {0: 0, 1: 0})


def test_what_host_memory_has_no_room_for_goes_to_disk_and_both_are_limited() -> None:
    rig = SpillRig(30, 30, 30, dram=60, disk=60)  # two of the devices are on each host
    assert rig.victims(75) is None  # three buffers, and room for two
    assert rig.victims(60) == [0, 1]
    for ident in (0, 1):
        rig.spill.begin(rig.buffers[ident])
    assert [rig.buffers[ident].on_disk for ident in (0, 1)] == [False, True]
    assert rig.on_hosts() == {0: 60, 1: 60}
    assert [used for _, used in rig.disk.counters()] == [60, 60]
    for ident in (0, 1):
        rig.spill.spilled(rig.buffers[ident])
    rig.spill.drop(rig.buffers[1])
    assert [used for _, used in rig.disk.counters()] == [0, 0]
    assert [(kept, found) for _, kept, found in rig.spill.audit()] == [(60, 60), (60, 60), (0, 0), (0, 0)]


def test_host_memory_is_limited() -> None:
    rig = SpillRig(30, 30, dram=100)
    assert rig.victims(70) == [0]
    assert rig.victims(90) is None  # each host has two shards: the first buffer takes 60 of 100 bytes
    rig.spill.begin(rig.buffers[0])
    rig.spill.spilled(rig.buffers[0])
    assert rig.victims(90) is None


def test_the_error_names_the_holders() -> None:
    rig = SpillRig(20, 40, 30)
    text = rig.spill.holders_text(rig.short(60).missing, {ANN: "client 'ann'"}.__getitem__, most=2)
    assert text == (
        "50 bytes too few on each of devices 0-3: "
        "client 'ann' holds buffer 11 (40 bytes), client 'ann' holds buffer 12 (30 bytes), and 1 more"
    )


def test_an_impossible_event_of_a_buffer_is_illegal() -> None:
    for state in ("promised", "ready", "spilling", "spilled", "restoring", "poisoned"):
        for event in ("filled", "spill", "copied", "restore", "spoilt"):
            buffer = Buffer(1, ANN, 1, 0, 1)
            buffer.state = state
            if (state, event) in TABLE:
                buffer.turn(event)
                assert buffer.state == TABLE[state, event]
            else:
                with pytest.raises(Illegal):
                    buffer.turn(event)
                assert buffer.state == state
