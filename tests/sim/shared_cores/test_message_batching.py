"""Python processes on a machine with few cores: one thread at a time, batched messages, devices that compute on
cores.

`seaway calibrate` describes the machine of our own backend like this (`[[shared]]` with `python`)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest

import seaway as sw
from core.model.errors import Impossible
from core.protocol import effects as e
from core.schedule.policy import Fifo
from sim.engine.clock import SimClock
from sim.hardware.kernels import Collective, Kernel
from sim.hardware.profiles import Profile, profile
from sim.hardware.setups import load
from sim.hosts.context import RareTimes
from sim.network import Together
from sim.shared_cores.cores import CALL, DEVICE, ENQUEUE, READ, Cores
from sim.simulation.faults import Fault
from sim.simulation.simulation import Simulation
from tests.core.build import chain

US, MS = 1_000, 1_000_000
QUICK = RareTimes(lease=3 * MS, form=MS, join=MS, restart=MS)
ONE = {"cores": 2, "hosts": True, "controller": True, "clients": True, "python": True}
COSTS = {"send": 100 * US, "receive": 80 * US, "complete": 40 * US, "complete_more": 4 * US,
         "literal": 0, "transfer_end": 0, "transfer_byte_ps": 0, "client_call": 150 * US, "client_note": 30 * US,
         "step": 75 * US, "relay_step": 10 * US, "enqueue": 110 * US, "prepare": 15 * US, "transfer_chunk": 280 * US,
         "send_byte_ps": 400, "receive_byte_ps": 400}  # fmt: skip


def costs(**more: int) -> Profile:
    return msgspec.structs.replace(profile("seaway"), **{**COSTS, **more})


def simulation(
    hosts: int = 2, how: Profile | None = None, times: RareTimes | None = None, **shared: object
) -> Simulation:
    setup = load(
        {"name": "mine", "island": [{"name": "i", "kind": "cpu", "hosts": hosts, "devices_per_host": 1}]},
        shared=[{**ONE, **shared}],
    )
    return Simulation(setup, policy=Fifo, profile=how or costs(), times=times)


class OneClient:
    """One client that makes some calls at once and waits for all. It records the messages on the network."""

    def __init__(self, sim: Simulation, calls: int, nodes: int = 1, name: str = "a") -> None:
        self.sim = sim
        self.wires: list[tuple[int, int, int, int]] = []  # (when, sender, receiver, messages)
        self.ended: list[int] = []
        send = sim.network.send

        def watched(sender: int, receiver: int, message: Any, nbytes: int, departure: int) -> None:
            number = len(message.messages) if isinstance(message, Together) else 0
            self.wires.append((departure, sender, receiver, number))
            send(sender, receiver, message, nbytes, departure)

        sim.network.send = watched  # type: ignore[method-assign]
        client = sim.client(name)
        client.on_effect = self._heard
        hosts = sim.cluster.hosts
        program = client.call(lambda c, now: c.register(chain(nodes, hosts), now))
        for _ in range(calls):
            client.call(lambda c, now: c.submit(program, (bytes(4 * hosts),), now))  # type: ignore[arg-type]
        sim.run(until=lambda: len(self.ended) == calls)

    def _heard(self, effect: e.Command) -> None:
        if isinstance(effect, e.RunEnded):
            assert effect.blame is None
            self.ended.append(self.sim.now)


# --- one thread at a time ---------------------------------------------------------------------------------------


def test_threads_of_one_process_work_one_after_another_and_those_of_others_beside_them() -> None:
    clock = SimClock()
    log: list[tuple[str, int]] = []
    cores = Cores(clock, 2, lambda name: name // 10)

    class Someone:
        alive = True

        def __init__(self, name: int) -> None:
            self.name = name

    def work(name: int, thread: int, cost: int, called: str) -> None:
        share = cores.share(Someone(name), thread)  # type: ignore[arg-type]
        share.work((0, 0), cost, lambda: log.append((called, clock.now)))

    work(10, READ, 10, "one")
    work(10, DEVICE, 10, "its device")
    work(11, CALL, 10, "its other thread")
    work(20, READ, 15, "another process")
    clock.run(until=100)
    assert log == [("one", 10), ("its device", 10), ("its other thread", 20), ("another process", 25)]
    assert cores.spent == {(10, READ): 10, (11, CALL): 10, (20, READ): 15, (10, DEVICE): 10}
    assert cores.free == 2


@pytest.mark.parametrize("together", [(), ("controller", "clients"), ("controller", "clients", "hosts")])
def test_a_python_process_never_works_longer_than_time_passes_however_many_cores_there_are(
    together: tuple[str, ...],
) -> None:
    sim = OneClient(simulation(cores=64, one_process=list(together)), calls=64).sim
    spent: Counter[object] = Counter()
    cores = sim.machines.controller
    assert cores is not None
    # what has begun counts when it is done
    sim.run(until=lambda: cores.free == cores.number)
    for (name, _), some in cores.spent.items():
        kind = "hosts" if name >= 0 else "controller" if name == -1 else "clients"
        spent["together" if kind in together else name] += some
    assert len(spent) == 4 - (len(together) and len(together) - 1 + ("hosts" in together))
    assert max(spent.values()) <= sim.now


# --- batching -----------------------------------------------------------------------------------------------------


def test_what_is_said_while_the_sender_cannot_write_leaves_together() -> None:
    play = OneClient(simulation(hosts=2, how=costs(step=5_000), one_process=["controller", "clients"]), calls=200)
    by_link: dict[tuple[int, int], list[int]] = {}
    for _, sender, receiver, number in play.wires:
        if number:
            by_link.setdefault((sender, receiver), []).append(number)
    assert {(-1, 0), (0, -1)} <= by_link.keys()
    assert max(by_link[-1, 0]) > 1


def test_a_busy_host_reports_ends_together_and_a_host_with_one_gang_reports_it_at_once() -> None:
    def reports(calls: int) -> int:
        play = OneClient(simulation(hosts=1, how=costs()), calls=calls)
        return sum(sender == 0 and receiver == -1 for _, sender, receiver, _ in play.wires)

    one = reports(1)
    assert reports(200) < one + 100


def test_processes_without_python_do_not_batch() -> None:
    play = OneClient(simulation(hosts=2, python=False), calls=8)
    assert all(number == 0 for *_, number in play.wires)


def test_messages_arrive_in_the_order_in_which_they_were_said() -> None:
    """A tree of hosts, many calls under way, and memory freed between them: a step that came too early would be a
    breach, and fail its run."""
    play = OneClient(simulation(hosts=6, how=costs()), calls=60, nodes=3)
    assert len(play.ended) == 60


@pytest.mark.parametrize("together", [(), (("controller", "clients"), ("hosts",))])
def test_a_host_that_comes_back_is_heard_again_and_so_are_those_of_its_process(
    together: tuple[tuple[str, ...], ...],
) -> None:
    sim = simulation(hosts=2, one_process=together, times=QUICK)
    assert len(OneClient(sim, calls=4).ended) == 4
    sim.trouble.crash_host(0)
    sim.trouble.return_host(0)
    sim.run(until=sim.now + 1_000 * MS)
    assert len(OneClient(sim, calls=4, name="b").ended) == 4


@pytest.mark.parametrize("hosts", [1, 3])
def test_the_same_arguments_give_the_same_trace(hosts: int) -> None:
    first, second = (OneClient(simulation(hosts=hosts, devices=True), calls=20) for _ in range(2))
    assert first.wires == second.wires
    assert first.ended == second.ended


# --- devices on the cores -----------------------------------------------------------------------------------------


def test_devices_that_compute_on_one_core_take_turns() -> None:
    """Four hosts' devices that each compute for 8 x 5 ms: four times as long on one core as on four."""
    times = {}
    for cores in (1, 2, 4):
        with sw.simulate(_table(cores, hosts=4), profile=costs(), progress=False) as session:
            step = sw.synthetic("step", devices=sw.slice(devices=4), duration="5ms", allreduce="4B")
            x: Any = np.float32(0)
            for _ in range(8):
                x = step(x)
            x.block_until_ready()
            times[cores] = session.now()
            spent = session.driver.simulation.machines.controller.spent  # type: ignore[attr-defined]
            computed = sum(some for (_, thread), some in spent.items() if thread == DEVICE)
            assert computed == 4 * 8 * 5 * MS
    assert 0.160 < times[1] < 0.185
    assert 0.080 < times[2] < 0.095
    assert 0.040 < times[4] < 0.055


@pytest.mark.parametrize(("inline", "devices"), [(False, True), (True, True), (True, False)])
def test_a_thread_that_computes_its_gangs_enqueues_nothing_meanwhile(inline: bool, devices: bool) -> None:
    """Two devices of one host, with a computation of 50 ms each, and enough cores for both. `devices`: whether
    they compute on these cores."""
    table = _table(8)
    table["island"][0]["devices_per_host"] = 2
    table["shared"][0]["devices"] = devices
    with sw.simulate(table, profile=costs(), progress=False) as session:
        cost = Kernel("long", 50 * MS, inline=inline)
        steps = [
            sw.pmap(lambda x: x + 1, devices=sw.slice(devices=1, exclusive=True), cost=cost, name=f"long {at}")
            for at in range(2)
        ]
        for x in [step(np.zeros(1, np.float32)) for step in steps]:
            x.block_until_ready()
        first, second = session.trace.gangs().sort_values("started_us").to_dict("records")
    if inline and devices:
        assert second["started_us"] > first["ended_us"]
    else:
        assert second["started_us"] < first["started_us"] + 10_000


def test_who_computes_what_is_given_up_goes_on() -> None:
    """Its peer fails in the middle of it: the runs of the new world are not delayed by it."""
    faults = [Fault(30 * MS, "crash_host", 1), Fault(130 * MS, "return_host", 1)]
    with sw.simulate(_table(8, hosts=2), profile=costs(), faults=faults, progress=False) as session:
        kernel = Kernel("sum", 50 * MS, (Collective("all-reduce", 4),), inline=True)
        step = sw.pmap(lambda x: x + 1, devices=sw.slice(devices=2), cost=kernel, name="sum")
        with pytest.raises(sw.errors.RunError):
            step(np.zeros(2, np.float32)).block_until_ready()
        assert session.now() > 0.03
        step(np.zeros(2, np.float32)).block_until_ready()


def test_a_device_delays_the_threads_of_its_host_by_at_most_a_slice() -> None:
    """One core, and computations of 20 ms: a call's way to the host is not 20 ms longer for each computing device."""
    with sw.simulate(_table(1), profile=costs(), progress=False) as session:
        step = sw.synthetic("step", devices=sw.slice(devices=1), duration="20ms")
        x: Any = np.float32(0)
        for _ in range(10):
            x = step(x)
        x.block_until_ready()
        assert session.now() < 10 * 0.020 + 0.02


def _table(cores: int, hosts: int = 1, **more: object) -> dict[str, Any]:
    island = {"name": "i", "kind": "cpu", "hosts": hosts, "devices_per_host": 1}
    shared = {**ONE, "cores": cores, "devices": True, "one_process": [["controller", "clients"], ["hosts"]]}
    return {"name": "mine", "island": [island], "shared": [shared], **more}


def test_contents_in_a_call_cost_the_enqueueing_thread_once_for_each_host() -> None:
    spent = {}
    for literal in (0, 700 * US):
        sim = OneClient(simulation(hosts=2, how=costs(literal=literal), cores=64), calls=5).sim
        cores = sim.machines.controller
        assert cores is not None
        # items that have begun count when they are done
        sim.run(until=lambda of=cores: of.free == of.number)  # type: ignore[misc]
        spent[literal] = [cores.spent[host, ENQUEUE] for host in (0, 1)]
    assert [after - before for before, after in zip(*spent.values(), strict=True)] == [5 * 700 * US] * 2


def test_bytes_of_contents_cost_both_ends() -> None:
    """Two chunks of a megabyte, from a client to a host."""
    table = _table(8, profile={"like": "seaway", "costs": {"transfer_chunk": "10 us", "transfer_byte_ps": 1000}})
    with sw.simulate(table, progress=False) as session:
        x = sw.put(np.zeros(2 << 20, np.uint8), devices=sw.slice(devices=1))
        x.block_until_ready()
        spent = session.driver.simulation.machines.controller.spent  # type: ignore[attr-defined]
        assert spent[0, READ] >= 2 * 10_000 + (2 << 20)


# --- the file -----------------------------------------------------------------------------------------------------


def test_a_cluster_file_brings_its_profile_and_a_session_takes_it() -> None:
    table = _table(2, profile={"like": "seaway", "status": "measured", "costs": {"send": "1 ms"}})
    with sw.simulate(table, progress=False) as session:
        simulation: Simulation = session.driver.simulation  # type: ignore[attr-defined]
        assert simulation.profile.send == MS
        assert simulation.profile.status == "measured"
        assert simulation.config.window_span == 5 * MS  # as the real backend is configured
    with sw.simulate(table, profile="paper", progress=False) as session:
        assert session.driver.simulation.profile.name == "paper"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("shared", "why"),
    [
        ({"one_process": ["controller", "clients"], "python": False}, "write `python = true` with it"),
        ({"one_process": ["controller", "servers"]}, "some of controller, clients, hosts"),
        ({"one_process": [["hosts"], ["hosts", "clients"]]}, "have none in common"),
        ({"python": "yes"}, "`python` cannot be 'yes'; it is true or false"),
        ({"devices": 2}, "`devices` cannot be 2; it is true or false"),
    ],
)
def test_mistakes_in_it_are_named(shared: dict[str, Any], why: str) -> None:
    with pytest.raises(Impossible, match=why):
        simulation(**shared)


def test_an_invalid_profile_in_a_cluster_file_is_named() -> None:
    with pytest.raises(Impossible, match=r"mine \[profile\] \[costs\] has no key 'sned'; nearest: 'send'"):
        load(_table(2, profile={"like": "seaway", "costs": {"sned": "1 ms"}}))
