"""Machines whose cores are shared: which threads wait for a core, that all times add up, and that no thread waits if
there are enough cores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.model.errors import Impossible
from core.protocol import effects as e
from core.protocol.messages import Heartbeat, Reports
from core.schedule.policy import Fifo
from sim.engine.clock import SimClock
from sim.engine.threads import SimThread
from sim.hardware.profiles import profile
from sim.hardware.setups import load
from sim.hosts.client_process import SimClient
from sim.hosts.context import RareTimes
from sim.shared_cores.cores import READ, Cores, CoreStalls, Share
from sim.shared_cores.crowded_host import CrowdedHost
from sim.simulation.faults import Fault
from sim.simulation.simulation import Simulation
from tests.core.build import chain
from tests.laws import examples
from tests.sim import scene

MS, S = 1_000_000, 1_000_000_000
QUICK = RareTimes(lease=3 * MS, form=MS, join=MS, restart=MS)
SEEDS = st.integers(0, 1 << 20)


class FakeProcess:
    """A process, as far as `Cores` needs it."""

    def __init__(self, name: int) -> None:
        self.name, self.alive = name, True


def share(cores: Cores, name: int) -> Share:
    return cores.share(FakeProcess(name), 0)  # type: ignore[arg-type]


def lane(clock: SimClock, its: Share | None, log: list[tuple[int, Any]], costs: int = 0) -> SimThread:
    def serve(what: Any, now: int) -> int:
        log.append((now, what))
        return now + costs

    return SimThread(clock, serve, its)


# --- cores ------------------------------------------------------------------------------------------------------


def test_two_processes_on_one_core_take_turns_and_their_time_adds_up() -> None:
    """Each item takes 10, and its consequences cost 5."""
    clock = SimClock()
    log: list[Any] = []
    cores = Cores(clock, 1)
    one, other = (lane(clock, share(cores, name), log, costs=5) for name in (0, 1))
    for number in range(3):
        other.put((0, number), 10, f"other {number}")
        one.put((0, number), 10, f"one {number}")
    clock.run(until=1000)
    assert log == [(10, "one 0"), (25, "other 0"), (40, "one 1"), (55, "other 1"), (70, "one 2"), (85, "other 2")]


@pytest.mark.parametrize("number", [2, 3, 100])
def test_with_as_many_cores_as_threads_no_thread_waits(number: int) -> None:
    logs = []
    for cores in (None, Cores(SimClock(), number)):
        clock = cores._clock if cores else SimClock()
        log: list[tuple[int, Any]] = []
        lanes = [lane(clock, share(cores, name) if cores else None, log, costs=3) for name in (0, 1)]
        for at, name, cost in ((0, 0, 7), (0, 1, 9), (2, 0, 0), (4, 1, 1), (30, 0, 2)):
            clock.at(at, lanes[name].put, (at, 0), cost, (name, at))
        clock.run(until=1000)
        logs.append(log)
    assert logs[0] == logs[1]


def test_a_dead_process_wants_no_core_and_finishes_only_its_current_item() -> None:
    clock = SimClock()
    log: list[Any] = []
    cores, dead = Cores(clock, 1), FakeProcess(0)
    doomed = cores.share(dead, 0)  # type: ignore[arg-type]
    for number in range(3):
        doomed.work((0, number), 10, log.append, f"doomed {number}")
    share(cores, 1).work((0, 0), 10, lambda: log.append(clock.now))
    clock.at(5, setattr, dead, "alive", False)
    clock.run(until=1000)
    assert log == ["doomed 0", 20]


@given(
    number=st.integers(1, 4),
    asks=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=25),
)
def test_cores_are_given_first_come_first_served(number: int, asks: list[tuple[int, int, int]]) -> None:
    """Compared with: in order of (time, process, number), each begins when the first core is free."""
    clock = SimClock()
    begun: dict[int, int] = {}
    cores = Cores(clock, number)

    def begin(which: int, its: Share, cost: int) -> None:
        begun[which] = clock.now
        its.give_back(clock.now + cost)

    for which, (at, name, cost) in reversed(list(enumerate(asks))):
        its = share(cores, name)
        clock.at(at, its.ask, (which, 0), begin, which, its, cost)
    clock.run(until=1000)
    free = [0] * number
    for at, _, which, cost in sorted((at, name, which, cost) for which, (at, name, cost) in enumerate(asks)):
        free.sort()
        assert begun[which] == max(at, free[0])
        free[0] = begun[which] + cost
    assert cores.free == number


def test_a_swarm_waits_for_cores_one_by_one() -> None:
    clock = SimClock()
    log: list[Any] = []
    cores = Cores(clock, 1)
    swarmed = lane(clock, share(cores, 0), log)
    swarmed.absorb(np.array([0, 0, 0]), np.array([1, 2, 3]), 10)
    lane(clock, share(cores, 1), log).put((0, 0), 10, "between")
    clock.at(1, swarmed.put, (4, 0), 10, "behind")
    clock.run(until=1000)
    assert log == [(20, "between"), (50, "behind")]


# --- simulations ------------------------------------------------------------------------------------------------


def simulation(*shared: dict[str, object], islands: int = 1, faults: tuple[Fault, ...] = (), **how: Any) -> Simulation:
    cores = {"machine": {"cores": how.pop("cores")}} if "cores" in how else {}
    setup = load("B", hosts=4, devices_per_host=4, islands=islands, shared=list(shared), **cores)
    return Simulation(setup, policy=Fifo, profile=profile("seaway"), faults=faults, times=QUICK, **how)


def time_of_runs(sim: Simulation, clients: int = 1, runs: int = 3) -> int:
    """When the last run has ended, if all clients call at once."""
    ended: list[e.Command] = []

    def live(client: SimClient) -> Any:
        yield from client.turn()
        program = client.act(lambda c, now: c.register(chain(8, 16), now))
        for _ in range(runs):
            yield from client.turn()
            client.act(lambda c, now: c.submit(program, (bytes(64),), now))  # type: ignore[arg-type]

    for number in range(clients):
        client = sim.client(f"c{number}")
        client.on_effect = lambda effect: ended.append(effect) if isinstance(effect, e.RunEnded) else None
        sim.env.process(live(client))
    sim.run(until=lambda: len(ended) == runs * clients)
    return sim.now


TOGETHER = {"controller": True, "clients": True}


def test_controller_and_clients_on_one_core_are_slower_than_on_many() -> None:
    plain = time_of_runs(simulation(), clients=6)
    one, two, many = (time_of_runs(simulation({**TOGETHER, "cores": cores}), clients=6) for cores in (1, 2, 64))
    assert one > two > many == plain


def test_a_lone_host_on_one_core_is_slower_and_all_of_its_work_is_done() -> None:
    """Two steps of a gang on its way through a host cannot overlap any more."""
    assert time_of_runs(simulation(cores=1)) > time_of_runs(simulation(cores=6)) == time_of_runs(simulation())


def test_hosts_on_one_machine_hold_each_other_up() -> None:
    apart = time_of_runs(simulation(cores=1))
    by_two = time_of_runs(simulation({"hosts": "0-3", "each": 2, "cores": 1}))
    by_four = time_of_runs(simulation({"hosts": "0-3", "cores": 1}))
    assert apart < by_two < by_four


def test_with_enough_cores_no_machine_is_pooled_and_islands_stay_cohorts() -> None:
    sim = simulation({"hosts": [0, 1, 2], "controller": True, "clients": ["a"], "cores": 6 * 3 + 1 + 2})
    assert list(sim.islands) == [0]
    assert sim.machines.of_host(0) is sim.machines.controller is sim.machines.of_client("a") is None
    short = simulation({"hosts": [0, 1, 2], "controller": True, "clients": ["a"], "cores": 6 * 3 + 1 + 1})
    assert not short.islands
    cores = short.machines.controller
    assert cores is short.machines.of_host(0) is short.machines.of_client("a") is not None
    assert short.machines.of_client("b") is short.machines.of_host(3) is None


def test_only_islands_with_too_few_cores_are_simulated_host_by_host() -> None:
    sim = simulation({"hosts": [5, 6], "cores": 2}, islands=3)
    assert list(sim.islands) == [0, 2]
    assert [host for host, process in sim.lone_hosts.items() if isinstance(process, CrowdedHost)] == [5, 6]
    both = simulation({"hosts": [0, 4], "cores": 2}, islands=3)
    assert list(both.islands) == [2]


def test_after_a_crash_the_neighbours_have_the_cores() -> None:
    faults = (Fault(MS, "crash_host", 2), Fault(9 * MS, "return_host", 2))
    sim = simulation({"hosts": [1, 2], "cores": 1}, faults=faults)
    assert time_of_runs(sim) > MS + sim.times.lease  # until the loss was known
    sim.run(until=20 * MS)
    cores = sim.machines.of_host(1)
    assert cores is not None
    assert cores is sim.machines.of_host(2)
    assert cores.free == 1
    back = sim.process(2)
    assert back.alive
    assert isinstance(back, CrowdedHost)


def test_a_single_call_of_a_client_waits_for_its_core_too() -> None:
    """`call` runs the simulation until the call is due."""
    client = simulation({**TOGETHER, "cores": 1}).client("a")
    assert client.call(lambda c, now: now) == client.sim.profile.client_call


def test_polling_for_the_time_of_a_call_gives_it_to_the_nanosecond() -> None:
    """The client library polls like this."""
    sim = simulation({**TOGETHER, "cores": 1})
    one, other = sim.client("one"), sim.client("other")
    due = [client.due for client in (one, other)]
    assert due == [sim.profile.client_call] * 2
    waits = []
    for client in (one, other):
        sim.run(until=max(due))
        while sim.now < client.free_at:
            sim.run(until=client.free_at)
        client.act(lambda c, now: None)
        waits.append(sim.now)
    assert waits == [sim.profile.client_call, 2 * sim.profile.client_call]


# --- both fidelities --------------------------------------------------------------------------------------------


def assert_same(one: dict[str, Any], other: dict[str, Any], seed: int) -> None:
    for what, value in one.items():
        assert other[what] == value, f"seed {seed}: {what}"


@given(seed=SEEDS, moves=st.booleans())
@example(seed=37889, moves=True)  # a gang that enters because time has passed, when a heartbeat comes
@examples(4)
def test_both_fidelities_agree_with_too_few_cores(seed: int, moves: bool) -> None:
    drawn = scene.draw(seed, moves=moves, troubles=("slow", "crash_host", "leave_host"))
    drawn.shared = scene.draw_shared(drawn)
    exact = scene.play(drawn, "exact", moves=moves)
    assert_same(exact, scene.play(drawn, "cohort", moves=moves), seed)


def test_the_controller_receives_heartbeats_at_the_same_time() -> None:
    """Decisions that the controller makes because time has passed, it makes when a message arrives. A cohort leaves out
    heartbeats that say nothing new, as those of an island without orders."""
    heard: dict[Any, set[tuple[int, int]]] = {"exact": set(), "cohort": set()}
    beat = 0
    for fidelity, beats in heard.items():
        sim = Simulation(load("B", hosts=4, devices_per_host=2, islands=2), profile=profile("paper"), fidelity=fidelity)
        machine: Any = sim.controller_process.machine

        def listen(event: Any, now: int, handle: Any = machine.handle, beats: Any = beats) -> Any:
            message = getattr(event, "message", None)
            if isinstance(message, Reports) and any(isinstance(each, Heartbeat) for each in message.reports):
                beats.add((now, message.island))
            return handle(event, now)

        machine.handle = listen
        client = sim.client("c")
        client.act(lambda c, now: c.register(chain(1, 8), now))
        for n in (3, 5, 11, 15):
            client.act(lambda c, now: c.submit(1, (bytes(32),), now))
            sim.run(until=n * sim.times.beat // 2)
        beat = sim.times.beat
    assert heard["exact"] == {(n * beat + 10_000, island) for n in range(1, 8) for island in (0, 1)}
    assert heard["cohort"] == {(n * beat + 10_000, 0) for n in (1, 2, 3, 6)} | {(beat + 10_000, 1)}


@given(seed=SEEDS)
@examples(2)
def test_a_machine_with_enough_cores_changes_nothing(seed: int) -> None:
    """Profile `paper` has none of the costs that are charged only where Python processes share cores."""
    drawn, costs = scene.draw(seed), profile("paper")
    plain = scene.play(drawn, "exact", costs=costs)
    drawn.shared = [{**TOGETHER, "hosts": list(range(drawn.hosts * drawn.islands)), "cores": 10**6}]
    assert_same(plain, scene.play(drawn, "exact", costs=costs), seed)


# --- the placement of processes, as people write it -------------------------------------------------------------


def test_a_machine_may_have_several_processes() -> None:
    setup = load("C", shared=[{"hosts": [0, "4-6"], "controller": True, "clients": ["ann"], "cores": 8}])
    (machine,) = setup.shared
    assert (machine.hosts, machine.controller, machine.clients) == ((0, 4, 5, 6), True, ("ann",))
    assert (machine.cores, machine.threads, machine.short) == (8, 4 * 6 + 1 + 2, True)
    assert "the controller, hosts 0, 4, 5, 6, client 'ann': one machine of 8 cores" in setup.describe()
    stated = [figure for figure in setup.figures() if figure[0] == "shared machine 0"]
    assert stated == [("shared machine 0", "cores", 8, "stated in cluster 'C'")]


def test_by_default_every_process_has_its_own_machine() -> None:
    assert load("A").shared == ()
    assert not Simulation(load("C"), profile=profile("paper")).machines.islands


def test_machines_can_be_given_by_hosts_per_machine_and_cores() -> None:
    setup = load("C", machine={"cores": 20}, shared=[{"hosts": "0-9", "each": 4}])
    assert [machine.hosts for machine in setup.shared] == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]
    assert [machine.cores for machine in setup.shared] == [20] * 3
    assert [machine.short for machine in setup.shared] == [True, True, False]


def test_clients_without_a_named_machine_can_be_placed(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        "[[island]]\nkind = 'v4'\nhosts = 4\n"
        "[[shared]]\ncores = 2\ncontroller = true\nclients = true\n"
        "[[shared]]\ncores = 1\nclients = ['ann']\n"
    )
    machines = Simulation(load(file), profile=profile("seaway")).machines
    assert machines.of_client("bob") is machines.of_client("eve") is machines.controller is not None
    ann = machines.of_client("ann")
    assert ann is not None
    assert (ann.number, ann is machines.controller) == (1, False)


@pytest.mark.parametrize(
    ("shared", "text"),
    [
        ([{"host": [1]}], r"\[\[shared\]\] 0 has no key 'host'; nearest: 'hosts'"),
        ([{"cores": 4}], r"\[\[shared\]\] 0 places no process on it; write `hosts`, `controller = true` or `clients`"),
        ([{"hosts": [16]}], "there is no host 16; hosts are 0 to 15"),
        ([{"hosts": "3-1"}], "`hosts` cannot be '3-1'; write numbers, or '0-3' for several"),
        ([{"hosts": [True]}], "`hosts` cannot be True"),
        ([{"hosts": [1, 2]}, {"hosts": [2]}], "host 2 stands in .* twice; a process is on one machine"),
        ([{"controller": True}] * 2, "the controller stands in .* twice"),
        ([{"clients": True}] * 2, "`clients = true` stands in .* twice"),
        ([{"clients": ["a", "a"]}], "client 'a' stands in .* twice"),
        ([{"clients": "ann"}], "`clients` cannot be 'ann'; write their names, or true for all"),
        ([{"controller": "yes"}], "`controller` cannot be 'yes'; it is true or false"),
        ([{"hosts": [1], "cores": 0}], "`cores` is zero"),
        ([{"hosts": [1], "cores": "two"}], "`cores` cannot be 'two'; write a whole number"),
        ([{"hosts": [1, 2], "each": 0}], "`each` cannot be 0"),
        ([{"hosts": [1, 2], "each": 2, "controller": True}], "`each` divides `hosts` over machines"),
        ([3], r"\[\[shared\]\] 0 is no table"),
        ({"hosts": [1]}, r"`shared` is a list of tables; write \[\[shared\]\]"),
    ],
)
def test_invalid_machines_are_refused_with_the_remedy(shared: Any, text: str) -> None:
    with pytest.raises(Impossible, match=text):
        load("C", shared=shared)


def test_hosts_of_different_machines_need_a_number_of_cores() -> None:
    table: dict[str, object] = {
        "island": [{"name": "a", "kind": "v4", "hosts": 2}, {"name": "b", "kind": "v5e", "hosts": 2}]
    }
    text = "machines of these hosts have 240 and 224 cores; say how many `cores` this one has"
    with pytest.raises(Impossible, match=text):
        load(table, shared=[{"hosts": [1, 2]}])
    assert load(table, shared=[{"hosts": [2, 3]}]).shared[0].cores == 224


# --- stalls -----------------------------------------------------------------------------------------------


def test_stalls_occur_at_their_rate_and_with_their_mean_length() -> None:
    stalls = CoreStalls(every=4_000_000, each=300_000, seed=1)
    found = [stalls.of(100_000) for _ in range(20_000)]
    held = [one for one in found if one]
    assert len(held) == pytest.approx(20_000 / 40, rel=0.15)
    assert sum(held) / len(held) == pytest.approx(300_000, rel=0.15)


def test_a_stalled_thread_keeps_its_core_and_is_not_charged_for_it() -> None:
    class Once(CoreStalls):
        def of(self, work: int) -> int:
            return 1000

    clock = SimClock()
    cores = Cores(clock, 1, lambda name: name, stalls=Once(1, 1, 0))
    ended: list[int] = []
    for name in (0, 1):
        cores.share(FakeProcess(name), READ).work(  # type: ignore[arg-type]
            (0, 0), 100, lambda: ended.append(clock.now)
        )
    clock.run()
    assert ended == [1100, 2200]
    assert cores.spent == {(0, READ): 100, (1, READ): 100}


def test_work_under_way_counts_as_spent_as_far_as_it_has_come() -> None:
    clock = SimClock()
    cores = Cores(clock, 2)
    cores.share(FakeProcess(0), READ).work((0, 0), 100, lambda: None)  # type: ignore[arg-type]
    cores.share(FakeProcess(1), READ).work((0, 0), 300, lambda: None)  # type: ignore[arg-type]
    clock.run(until=200)
    assert cores.spent == {(0, READ): 100, (1, READ): 200}
    clock.run()
    assert cores.spent == {(0, READ): 100, (1, READ): 300}
