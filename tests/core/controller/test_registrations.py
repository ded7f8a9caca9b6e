"""A client that registers a program with `tell` hears once that it is compiled, or why it never will be."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from core.controller import Bounds, Config
from core.model import SliceSpec
from core.model.program import Program
from core.model.topology import small
from core.protocol import MOST_ABOUT, OperateSlices, ProgramTold
from tests.core.build import Build, chain
from tests.world.script import Script
from tests.world.timing import MS, S
from tests.world.world import World

LONG = 50 * MS


def world(hosts: int = 2, devices_per_host: int = 2, islands: int = 1, **options: object) -> World:
    return World(small(hosts, devices_per_host, islands), seed=3, **options)  # type: ignore[arg-type]


def program(devices: int = 4, name: str = "f", *picks: int, exclusive: bool = False) -> Program:
    """One node on a slice "s", or on those of its devices."""
    b = Build(name, s=devices)
    if exclusive:
        b.slices = [SliceSpec("s", devices, exclusive=True)]
    if picks:
        b.slices.append(SliceSpec(f"s{picks}", len(picks), of="s", picks=picks))
    where = b.slices[-1].name
    return b.program(b.call(name, where, [b.arg(where, 8)]))


def told(w: World, client: Script, number: int) -> ProgramTold:
    """What the client hears; nothing else may be left to do."""
    assert w.run()
    assert w.faults == []
    w.at_rest()
    return client.heard[number]


def test_a_client_is_told_what_the_host_of_the_first_device_says_about_the_code() -> None:
    w = world()
    client = w.client("a")
    number = client.register(program(), tell=True)
    assert told(w, client, number) == ProgramTold(number, b"f on 0,1,2,3")


def test_a_client_that_did_not_ask_is_told_nothing() -> None:
    w = world()
    client = w.client("a")
    client.register(program())
    assert w.run()
    assert client.heard == {}


@pytest.mark.parametrize("picks", [(13, 2), (5, 4, 3), (0,), (9,)])
def test_reports_travel_up_a_tree_of_hosts_whoever_has_the_first_device(picks: tuple[int, ...]) -> None:
    w = world(hosts=7, config=Config(fanout=2))
    client = w.client("a")
    number = client.register(program(14, "f", *picks), tell=True)
    assert told(w, client, number).about == b"f on " + ",".join(map(str, picks)).encode()


def test_only_the_code_of_the_first_node_is_told_of() -> None:
    w = world()
    b = Build("two", s=2, t=2)
    x = b.call("first", "s", [b.arg("s", 8)])
    client = w.client("a")
    number = client.register(b.program(b.call("second", "t", [x])), tell=True)
    assert told(w, client, number).about == b"first on 0,1"


def test_a_program_without_nodes_is_compiled_at_once() -> None:
    w = world()
    b = Build("nothing", s=2)
    client = w.client("a")
    number = client.register(b.program(), tell=True)
    assert told(w, client, number) == ProgramTold(number)


def test_each_registration_is_told_of_and_the_code_is_compiled_once() -> None:
    w = world(diary=True)
    first, second = w.client("a"), w.client("b")
    numbers = [first.register(chain(1, devices=4), tell=True) for _ in range(2)]
    assert w.run()
    numbers.append(second.register(chain(1, devices=4), tell=True))
    assert told(w, second, numbers[2]).about == b"step 0 on 0,1,2,3"
    assert [first.heard[number].about for number in numbers[:2]] == [b"step 0 on 0,1,2,3"] * 2
    assert sum(line.count("-> compile ") for line in w.diary or ()) == 2  # on each host


def test_a_run_that_is_submitted_before_the_answer_is_run_as_always() -> None:
    w = world()
    client = w.client("a")
    f = program()
    number = client.register(f, tell=True)
    run = client.submit(f, bytes(32))
    assert told(w, client, number).about == b"f on 0,1,2,3"
    assert run.good


# --- it never will be -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asks", "why"), [(program(5), "there is island 'i0'"), (program(2, "f", 7), "device of slice 's' 7 is unknown")]
)
def test_a_refused_program_is_answered_by_the_same_note(asks: Program, why: str) -> None:
    w = world()
    client = w.client("a")
    number = client.register(asks, tell=True)
    said = told(w, client, number)
    assert said.blame is not None
    assert said.blame.code == "refused"
    assert why in said.blame.cause
    assert client.refusals == []  # there is no other answer


def test_what_the_compiler_says_is_told() -> None:
    w = world()
    w.break_code("f", "no such operation")
    client = w.client("a")
    number = client.register(program(), tell=True)
    said = told(w, client, number)
    assert said.blame is not None
    assert (said.blame.code, said.blame.cause, said.blame.program) == ("user", "no such operation", "f")


def test_a_host_cannot_say_too_much() -> None:
    w = world()
    w.compiler.more_about = bytes(MOST_ABOUT)
    client = w.client("a")
    number = client.register(program(), tell=True)
    said = told(w, client, number)
    assert said.blame is not None
    assert (
        said.blame.cause == f"there are {MOST_ABOUT + 12} bytes to say about the compiled code, of at most {MOST_ABOUT}"
    )


def test_a_compilation_that_takes_too_long_is_ended_by_its_bound() -> None:
    w = world(config=Config(bounds=Bounds(floor=S, compile=S, factor=1)))
    w.compiler.times["f"] = 100 * S
    client = w.client("a")
    number = client.register(program(), tell=True)
    assert w.run_until(lambda: number in client.heard)
    said = client.heard[number].blame
    assert said is not None
    assert (said.code, said.cause) == ("timeout", "its code was not compiled in time on hosts 0-1")
    assert "program 1 waits: compiling 'f' on hosts 0-1" in client.told
    assert "stall: program 'f' of client 'a' is not compiled: compiling 'f' on hosts 0-1" in w.told


# --- it waits ---------------------------------------------------------------------------------------------------


def test_a_registration_waits_for_its_slice_and_says_so() -> None:
    w = world()
    holder, client = w.client("a"), w.client("b")
    held = holder.register(program(4, "held", exclusive=True), tell=True)
    assert w.run_until(lambda: held in holder.heard)
    number = client.register(program(4, "f", 3, exclusive=True), tell=True)
    w.run_for(LONG)
    assert number not in client.heard
    reason = "slice 's' waits for devices 0-3 of island 'i0', bound by slice 's' of session 1"
    assert client.told == [f"program 1 waits: {reason}"]
    assert client.machine.longest_wait(w.now).startswith(reason)
    assert [stall.reason for stall in w.machine.snapshot().waits] == [reason]
    holder.close()
    assert told(w, client, number).about == b"f on 3"
    assert client.machine.longest_wait(w.now) == ""


def test_hosts_that_never_come_end_the_wait_in_time() -> None:
    w = World(small(2, 2), seed=3, start=False, config=Config(bounds=Bounds(absent=20 * S)))
    w.restart_controller()
    w.return_host(0)
    w.run_for(S)
    client = w.client("a")
    number = client.register(program(4, "f", 1), tell=True)
    assert w.run_until(lambda: number in client.heard)
    said = client.heard[number].blame
    assert said is not None
    assert said.code == "timeout"
    assert said.cause == "slice 's' waits for hosts 1 of island 'i0' (absent), for 20 s"


# --- something happens before the answer ----------------------------------------------------------------------


def compiling(*, hosts: int = 3, devices: int = 2, picks: tuple[int, ...] = ()) -> tuple[World, Script, int]:
    """A world in which the code of a program is being compiled."""
    w = world(hosts=hosts)
    w.compiler.times["f"] = LONG
    client = w.client("a")
    number = client.register(program(devices, "f", *picks), tell=True)
    w.run_for(LONG // 2)
    assert number not in client.heard
    return w, client, number


def test_a_slice_that_moves_is_compiled_for_its_new_place() -> None:
    w, client, number = compiling()
    w.crash_host(0)
    assert told(w, client, number) == ProgramTold(number, b"f on 2,3")


def test_a_slice_without_another_place_waits_until_its_host_is_back() -> None:
    w, client, number = compiling(hosts=1, picks=(1, 0))
    w.crash_host(0)
    w.run_for(30 * S)
    assert number not in client.heard
    w.return_host(0)
    assert told(w, client, number) == ProgramTold(number, b"f on 1,0")


def cut_for_a_while(w: World, client: Script) -> None:
    w.cut("client a", "controller")
    w.run_for(LONG)
    w.mend("client a", "controller")


def cut_beyond_the_lease(w: World, client: Script) -> None:
    w.cut("client a", "controller")
    w.run_for(3 * w.timing.lease)
    w.mend("client a", "controller")


def restart(w: World, client: Script) -> None:
    w.restart_controller()


@pytest.mark.parametrize("happens", [cut_for_a_while, cut_beyond_the_lease, restart])
@pytest.mark.parametrize("answered", [False, True])
def test_it_is_told_once_whatever_happens_to_connections_and_to_the_controller(
    happens: Callable[[World, Script], None], answered: bool
) -> None:
    w, client, number = compiling(picks=(1, 0))
    if answered:
        assert w.run_until(lambda: number in client.heard)
    happens(w, client)
    w.run_for(3 * w.timing.lease)
    later = client.register(program(2, "g", 1), tell=True)
    assert told(w, client, later).about == b"g on 1"
    assert client.heard[number].about == b"f on 1,0"


def test_a_program_that_is_unregistered_before_the_answer_is_not_told_of() -> None:
    w, client, number = compiling()
    client.unregister(number)
    again = client.register(program(2), tell=True)
    assert told(w, client, again).about == b"f on 0,1"
    assert number not in client.heard


def test_a_client_that_closes_its_session_is_told_that_it_is_over() -> None:
    w, client, number = compiling()
    client.close()
    said = told(w, client, number).blame
    assert said is not None
    assert said.code == "client-lost"


@pytest.mark.parametrize("wrong", [False, True])
def test_a_program_that_names_a_slice_twice_or_one_that_is_not_there_harms_nobody(wrong: bool) -> None:
    w = world(hosts=4)
    client = w.client("a")
    good = program()
    run = client.submit(good, bytes(32))
    nowhere = msgspec.structs.replace(good, nodes=(msgspec.structs.replace(good.nodes[0], slice=7),))
    number = client.register(nowhere if wrong else msgspec.structs.replace(good, slices=good.slices * 2), tell=True)
    assert w.run()
    assert run.good
    blame = client.heard[number].blame
    assert (blame is not None and blame.code == "refused") == wrong
    w.controller.feed(OperateSlices(client.actor.number, "move"))
    assert w.answer == ""
    client.unregister(number)
    assert w.run()
    assert client.submit(good, bytes(32)).name
    assert w.run()
    assert w.faults == []
