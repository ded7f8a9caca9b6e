"""Device memory: what a plan needs, which runs are admitted, and the levels in the order and on devices."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.compile.draft import reads
from core.controller.plan_rows import PlanRows
from core.memory.footprint import Footprint, donates, effective
from core.memory.ledger import LacksMemory, Ledger, NeverFits, size_text
from core.model.atoms import Atoms
from core.model.errors import Illegal
from core.model.place import line
from core.model.plan import Gang, Move, Plan
from tests.laws import examples

from .memory_plans import DEVICES, Draft, draw_place, draw_plan
from .memory_world import World

FOUR, TWO = line(0, 0, 4), line(0, 0, 2)
seeds = st.integers(0, 10**9)


class LedgerRig:
    """A ledger of devices with 100 bytes each."""

    def __init__(self, capacity: int = 100) -> None:
        self.atoms = Atoms()
        self.ledger = Ledger(self.atoms, lambda _: capacity)

    def admit(self, run: int, plan: Plan, donated: frozenset[int] = frozenset()) -> LacksMemory | NeverFits | None:
        args = [(self.atoms.intern(s.layout.place), s.nbytes) for s in plan.slots if s.arg >= 0]
        return self.ledger.admit(run, Footprint(plan, donated, self.atoms), args=args)

    def on(self, device: int) -> tuple[int, int]:
        """Return (bytes resident behind the last gang, bytes committed) on a device."""
        for devices, resident, committed, _ in self.ledger.counters():
            if any(low <= device < high for low, high in devices):
                return resident, committed
        raise AssertionError(device)


def one_gang(out: int, temp: int = 0, keep: bool = False) -> Plan:
    draft = Draft(1)
    (made,) = draft.gang(FOUR, (), (out,), temp)
    draft.keep(*([made] if keep else []))
    return draft.plan()


def chain(*sizes: int) -> Plan:
    """Return a plan of gangs on one slice; each reads the output of the one before."""
    draft = Draft(1)
    inputs: tuple[int, ...] = ()
    for nbytes in sizes:
        inputs = draft.gang(FOUR, inputs, (nbytes,))
    draft.keep(*inputs)
    return draft.plan()


def step_of_training(nbytes: int) -> Plan:
    """Return a plan in which the state goes in, donated, and comes out."""
    draft = Draft(1)
    state = draft.arg(FOUR, nbytes)
    draft.keep(*draft.gang(FOUR, (state,), (nbytes,), donate=(state,)))
    return draft.plan()


# --- what a plan needs ------------------------------------------------------------------------------------


def test_a_chain_needs_the_memory_of_two_neighbours() -> None:
    rig = LedgerRig()
    assert rig.admit(1, chain(10, 30, 20)) is None
    assert rig.on(0) == (0, 50)  # the second and the third at once; the first is free by then
    levels = []
    for step in range(3):
        rig.ledger.entered(1, step, step)
        levels.append(rig.on(3))
    assert levels == [(10, 50), (30, 50), (20, 20)]
    assert rig.ledger.end(1) == ()
    assert rig.on(0) == (20, 20)  # the result belongs to its holder now
    rig.ledger.free(rig.atoms.intern(FOUR), 20)
    assert rig.on(0) == (0, 0)


@examples(30)
@given(seeds)
def test_bounds_are_the_true_peaks_over_all_orders(seed: int) -> None:
    """Checked against every order in which the steps of a small plan may enter."""
    rng = Random(seed)
    plan = draw_plan(rng, 0, steps=5)
    args = frozenset(slot.arg for slot in plan.slots if slot.arg >= 0)
    donated = effective(plan, args if rng.random() < 0.6 else frozenset())
    atoms = Atoms()
    footprint = Footprint(plan, donated, atoms)
    for group in footprint.groups:
        for device in (d for atom in group.atoms for low, high in atoms.devices(atom) for d in range(low, high)):
            found = list(levels_met(plan, donated, device))
            timeline = group.timeline
            assert timeline.bounds[0] == max(level for level, _ in found)
            assert timeline.bounds[0] + timeline.extras[0] == max(level + temp for level, temp in found)


def levels_met(plan: Plan, donated: frozenset[int], device: int) -> Iterator[tuple[int, int]]:
    """Return (level, scratch) of the run on this device, at every point of every order."""
    readers = {
        slot: [at for at, step in enumerate(plan.steps) if slot in reads(step)] for slot in range(len(plan.slots))
    }

    def here(slot: int) -> int:
        place = plan.slots[slot].layout.place
        return plan.slots[slot].nbytes if device in place.devices() else 0

    def live(done: frozenset[int], running: int = -1) -> int:
        """Return the bytes of all slots when the steps `done` have entered, with `running` as the last."""
        level = 0
        for number, slot in enumerate(plan.slots):
            donors = [g for g, s in enumerate(plan.steps) if isinstance(s, Gang) and number in s.donated]
            given_up = bool(donors) and donates(plan, donors[0], donated)
            if slot.arg >= 0:
                level -= here(number) if given_up and donors[0] in done - {running} else 0
                continue
            if slot.maker not in done:
                continue
            taken = 0
            if slot.takes >= 0 and donates(plan, slot.maker, donated) and slot.maker == running:
                taken = min(here(number), here(slot.takes))
            dead = not slot.keep and all(isinstance(plan.steps[r], Gang) for r in readers[number] or [slot.maker])
            dead = dead and done.issuperset(readers[number]) and running not in (readers[number] or [slot.maker])
            level += 0 if dead or (given_up and donors[0] in done - {running}) else here(number) - taken
        return level

    seen: set[frozenset[int]] = {frozenset()}
    todo = [frozenset[int]()]
    while todo:
        done = todo.pop()
        yield live(done), 0
        for step, after in enumerate(plan.after):
            if step not in done and done.issuperset(after):
                what = plan.steps[step]
                if isinstance(what, Gang) and device in what.place.devices():
                    yield live(done | {step}, step), what.temp
                if done | {step} not in seen:
                    seen.add(done | {step})
                    todo.append(done | {step})


# --- admission --------------------------------------------------------------------------------------------


def test_scratch_counts_as_a_maximum_and_not_as_a_sum() -> None:
    rig = LedgerRig()
    assert [rig.admit(run, one_gang(0, temp=70)) for run in range(5)] == [None] * 5
    assert rig.on(0) == (0, 70)
    assert rig.admit(5, one_gang(20, temp=20)) is None  # 20 bytes fit beside another run's 70 of scratch
    answer = rig.admit(6, one_gang(20))
    assert isinstance(answer, LacksMemory)
    assert answer.missing == {0: 10}


@pytest.mark.parametrize("depth", [1, 2, 8])
def test_a_donated_chain_of_runs_at_60_percent_keeps_the_window_full(depth: int) -> None:
    rig, key = LedgerRig(), 0
    plan = step_of_training(60)
    assert rig.ledger.admit(-1, None, [(rig.atoms.intern(FOUR), 60)]) is None
    donated = effective(plan, frozenset({0}))
    assert [rig.admit(run, plan, donated) for run in range(depth)] == [None] * depth
    for run in range(depth):
        rig.ledger.entered(run, 0, run)
        assert rig.on(0) == (60, 60)
    for run in range(depth):
        assert rig.ledger.end(run) == ()
    rig.ledger.free(key, 60)
    assert rig.on(0) == (0, 0)


def test_a_run_that_can_never_fit_is_refused_at_once() -> None:
    rig = LedgerRig()
    rig.ledger.admit(-1, None, [(rig.atoms.intern(FOUR), 60)])
    answer = rig.admit(1, step_of_training(60))  # the client kept a handle: the donation is not effective
    assert answer == NeverFits(
        "needs 120 bytes on each of devices 0-3 (60 bytes for its arguments), which have 100 bytes each"
    )
    assert rig.admit(1, step_of_training(1)) is None  # it was not admitted


def test_a_run_that_is_short_of_memory_learns_whether_waiting_helps() -> None:
    rig = LedgerRig()
    key = rig.atoms.intern(FOUR)
    rig.admit(1, one_gang(60))
    assert rig.admit(2, one_gang(60)) == LacksMemory({0: 20}, running=True, enough=True)
    rig.ledger.end(1)
    rig.admit(1, one_gang(60, keep=True))
    assert rig.admit(2, one_gang(60)) == LacksMemory({0: 20}, running=True, enough=False)  # its result stays
    rig.ledger.entered(1, 0, 0)
    rig.ledger.end(1)
    assert rig.admit(2, one_gang(60)) == LacksMemory({0: 20}, running=False, enough=False)
    before = rig.ledger.eased
    rig.ledger.free(key, 60)
    assert rig.ledger.eased > before
    assert rig.admit(2, one_gang(60)) is None


def test_a_donated_argument_counts_among_what_a_run_gives_back() -> None:
    rig, draft = LedgerRig(), Draft(1)
    big = draft.arg(FOUR, 60)
    draft.gang(FOUR, (big,), (10,), donate=(big,))
    plan = draft.plan()
    rig.ledger.admit(-1, None, [(rig.atoms.intern(FOUR), 60)])
    rig.admit(1, plan, effective(plan, frozenset({0})))
    assert rig.admit(2, one_gang(90)) == LacksMemory({0: 50}, running=True, enough=True)


def test_an_irregular_output_gives_back_its_surplus() -> None:
    draft = Draft(1)
    (rows,) = draft.gang(FOUR, (), (60,), irregular=True)
    draft.gang(FOUR, draft.gang(FOUR, (rows,), (10,)), (50,))
    rig = LedgerRig()
    rig.admit(1, draft.plan())
    rig.ledger.entered(1, 0, 0)
    assert rig.on(0) == (60, 70)
    rig.ledger.shrunk(1, rows, 20)
    assert rig.on(0) == (20, 60)  # 50 + 10 bytes will still come, when it is free
    for step in (1, 2):
        rig.ledger.entered(1, step, step)
    rig.ledger.end(1)
    assert rig.on(0) == (0, 0)


def test_an_illegal_call_changes_nothing() -> None:
    rig = LedgerRig()
    rig.admit(1, chain(10, 30, 20))
    before = rig.ledger.counters()
    for wrong in (
        lambda: rig.ledger.entered(1, 1, 0),
        lambda: rig.ledger.entered(2, 0, 0),
        lambda: rig.ledger.slot_freed(1, 0),
        lambda: rig.ledger.end(2),
        lambda: rig.admit(1, chain(1)),
    ):
        with pytest.raises(Illegal):
            wrong()
    assert rig.ledger.counters() == before
    rig.ledger.entered(1, 0, 0)
    with pytest.raises(Illegal):
        rig.ledger.entered(1, 0, 1)


# --- memory that is physically free -----------------------------------------------------------------------


def test_a_receive_waits_for_the_last_gang_beside_which_it_does_not_fit() -> None:
    rig = LedgerRig()
    for run, (out, temp) in enumerate([(80, 0), (60, 0), (0, 20)]):
        rig.admit(run, one_gang(out, temp))
        rig.ledger.entered(run, 0, run + 10)
        rig.ledger.end(run)
    key = rig.atoms.intern(FOUR)
    assert [rig.ledger.after(key, nbytes) for nbytes in (20, 21, 41, 81)] == [-1, 10, 11, 12]
    rig.ledger.gang_finished(10)
    assert [rig.ledger.after(key, nbytes) for nbytes in (21, 41)] == [-1, 11]
    assert rig.ledger.admit(-1, None, [(key, 41)]) is None
    assert rig.ledger.after(key) == 11  # the arrival has been counted
    rig.ledger.gang_finished(12)  # and all gangs before it
    assert rig.ledger.after(key, 59) == -1


def test_a_surplus_makes_room_for_a_receive() -> None:
    draft = Draft(1)
    (rows,) = draft.gang(FOUR, (), (60,), irregular=True)
    draft.keep(rows)
    rig = LedgerRig()
    for run, plan in enumerate((draft.plan(), one_gang(30))):
        rig.admit(run, plan)
        rig.ledger.entered(run, 0, run)
    rig.ledger.gang_finished(0)
    key = rig.atoms.intern(FOUR)
    assert rig.ledger.after(key, 20) == 1
    rig.ledger.shrunk(0, rows, 20)
    assert [rig.ledger.after(key, nbytes) for nbytes in (50, 51)] == [-1, 1]


# --- laws -------------------------------------------------------------------------------------------------


def story(seed: int, dram: int = 10**9, cancels: bool = True, turns: int = 120) -> World:
    """Play runs, releases, cancels and all else in any order. Then let all runs end, then the clients."""
    rng = Random(seed)
    world = World(rng, rng.choice([60, 90, 140]), dram)
    plans = [draw_plan(rng, ident) for ident in range(3)]
    for _ in range(turns):
        what = rng.random()
        if what < 0.15 and len(world.waiting) < 4:
            world.submit(rng.choice(plans))
        elif what < 0.3:
            world.admit()
        elif what < 0.36 and world.named():
            world.release(rng.choice(world.named()))
        elif what < 0.38:
            world.atoms.intern(draw_place(rng))
        elif what < 0.4 and world.running and cancels:
            rng.choice(world.running).cancelled = True
        elif possible := world.go_on():
            rng.choice(possible)()
        world.check()
    world.drain()
    world.leave()
    return world


@examples(150)
@given(seeds)
def test_memory_never_exceeds_the_capacity_and_the_ledger_knows_it_to_the_byte(seed: int) -> None:
    """The world checks this after every event, in the devices' order and physically.

    Nothing is left at the end. No run that would fit alone is refused, since host memory is large enough.
    """
    assert story(seed).refused == []


@examples(40)
@given(seeds, st.sampled_from([0, 30, 100]))
def test_without_host_memory_some_run_is_refused_and_nothing_hangs(seed: int, dram: int) -> None:
    for text in story(seed, dram).refused:
        assert "too few on each of devices" in text
        assert "client 1 holds buffer" in text


def test_the_drawn_stories_contain_every_outcome() -> None:
    """The stories of the laws above have runs that are admitted, refused, spilled and restored."""
    worlds = [story(seed) for seed in range(12)]
    assert sum(world.seq for world in worlds) > 200
    assert sum(world.began for world in worlds) > 60
    assert sum(world.impossible for world in worlds) > 3
    assert sum(world.copied_out for world in worlds) > 10
    assert sum(world.copied_in for world in worlds) > 3
    assert sum(world.shrunk for world in worlds) > 3
    assert any(story(seed, dram=0).refused for seed in range(12))


def test_drawn_plans_contain_every_feature() -> None:
    plans = [draw_plan(Random(seed), 0) for seed in range(50)]
    steps = [step for plan in plans for step in plan.steps]
    assert any(isinstance(step, Move) for step in steps)
    assert any(slot.takes >= 0 and plan.slots[slot.takes].arg >= 0 for plan in plans for slot in plan.slots)
    assert any(slot.takes >= 0 and plan.slots[slot.takes].arg < 0 for plan in plans for slot in plan.slots)
    assert {d for step in steps if isinstance(step, Gang) for d in step.place.devices()} == set(range(DEVICES))


def test_a_footprint_is_derived_once_and_follows_the_atoms() -> None:
    atoms = Atoms()
    rows = PlanRows(chain(10, 20), atoms, lambda place: ((0, 1),))
    first = rows.footprint(frozenset())
    assert [group.atoms for group in first.groups] == [(0,)]
    atoms.intern(TWO)
    assert rows.footprint(frozenset()) is first
    assert [group.atoms for group in first.groups] == [(0, 1)]


def test_sizes_are_written_readably() -> None:
    assert [size_text(n) for n in (0, 1023, 1536, 16 << 30)] == ["0 bytes", "1023 bytes", "1.5 KiB", "16.0 GiB"]
