"""The program that puts faults on a real cluster: its parts alone, and a short schedule on processes.

Longer: `python -m tests.chaos --minutes 10`. docs/testing.md explains it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from jax.errors import JaxRuntimeError

from tests.chaos import jax_clients, journal
from tests.chaos.inject import Injected
from tests.chaos.journal import Call
from tests.chaos.judge import Bounds, RoundSeen, Verdict, judge
from tests.chaos.processes import Policy, Process, ProcessEnd, Usage, strays, usage
from tests.chaos.proxy import Proxy
from tests.chaos.schedule import KINDS, Fault, Schedule, Shape, draw, first, parse, rounds, text
from tests.chaos.shrink import shrink
from tests.chaos.watching import standing

ROOT = Path(__file__).parent.parent
SHAPE = Shape(2, 3, ("train-0", "puts-1", "jax-0"), 3.0, "cpu")
MACHINES = msgspec.structs.replace(SHAPE, machines=True, checked=True)
BOUNDS = Bounds(lease=3.0, start=4.0)
CALM = Usage(40, 30, 1, 3, 200)

# --- schedules ------------------------------------------------------------------------------------------------------


def test_a_seed_always_draws_the_same_schedule_however_long_it_is() -> None:
    assert first(200, 7, SHAPE) == first(200, 7, SHAPE)
    assert first(50, 7, SHAPE) == first(200, 7, SHAPE)[:50]
    assert first(50, 7, SHAPE) != first(50, 8, SHAPE)


def test_a_schedule_can_be_written_as_text_and_read_back() -> None:
    drawn = first(300, 3, SHAPE)
    assert parse(text(drawn)) == drawn
    assert parse("kill agent-1 restart=0.3; stop controller lasts=15 # a remark") == (
        Fault("kill", "agent-1", restart=0.3),
        Fault("stop", "controller", lasts=15.0),
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("kill", "a fault is a kind, a target and options"),
        ("kill agent", "a target is controller, agent-N"),
        ("kill driver-1", "a target is controller, agent-N"),
        ("cut agent-0>driver-1", "or a link, as agent-0>controller"),
        ("cut agent-0>agent-1>agent-2", "or a link, as agent-0>controller"),
        ("kill agent-0=agent-1", "what befalls a link is one of cut"),
        ("flip controller file=all", "'file=all' is none of"),
        ("cut controller", "what befalls a controller is one of kill, stop"),
        ("cut client-jax-0", "what befalls a client is one of kill, stop, terminate, pulse"),
        ("kill agent-1 soon=1", "'soon=1' is none of lasts="),
        ("kill agent-1 moment=noon", "'moment=noon' is none of"),
    ],
)
def test_an_invalid_line_is_refused_with_a_valid_example(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(line)


def test_all_kinds_of_faults_are_drawn_and_stops_lie_around_the_lease() -> None:
    drawn = first(4000, 0, SHAPE)
    assert {(fault.role, fault.kind) for fault in drawn} == {
        (role, kind) for role, kinds in KINDS.items() for kind in kinds
    }
    assert {fault.moment for fault in drawn} == {"", "compile", "save", "put", "epoch"}
    assert {fault.port for fault in drawn} == {"same", "other"}
    stops = sorted(fault.lasts for fault in drawn if fault.kind == "stop")
    assert 0.5 <= stops[0] < 1
    assert 30 < stops[-1] <= 60
    assert SHAPE.lease / 2 < stops[len(stops) // 2] < 2 * SHAPE.lease
    assert sum(stops) / len(stops) < 2 * SHAPE.lease  # or few would fit into ten minutes


def test_faults_are_drawn_only_for_processes_that_exist() -> None:
    alone = first(500, 0, Shape(1, 1, (), 3.0, "timed"))
    assert {fault.target for fault in alone} == {"agent-0", "controller"}
    assert {fault.target for fault in first(500, 0, SHAPE) if fault.role == "door"} == {"door-jax-0"}


@pytest.mark.parametrize(
    ("text", "code", "ours"),
    [
        ("DATA_LOSS: [host-lost] host 1 of island 'i0' was lost: silence (host 1)", "host-lost", True),
        ("DEADLINE_EXCEEDED: [timeout] hosts 1 did not finish in time (program 'step')", "timeout", True),
        ("INTERNAL: it broke", "", False),
        ("FAILED_PRECONDITION: [host-lost] host 1 was lost", "", False),
        ("KeyError: 7", "", False),
    ],
)
def test_an_error_of_a_jax_program_is_named_if_it_has_a_status_and_a_cause(text: str, code: str, ours: bool) -> None:
    found = jax_clients.named(JaxRuntimeError(text))
    assert (found.kind, found.code, found.ours) == ("JaxRuntimeError", code, ours)


@pytest.mark.parametrize(
    "text", ["UNAVAILABLE: Socket closed", "Unable to initialize backend 'proxy': UNAVAILABLE: Connection refused"]
)
def test_a_jax_program_whose_session_is_over_is_told_so(text: str) -> None:
    assert jax_clients.named(RuntimeError(text)) == ("Unreachable", "", True)


def test_a_round_ends_where_the_cluster_is_to_recover() -> None:
    a, b, c = parse("kill agent-0; kill agent-1 gap=2; kill agent-2")
    assert list(rounds((a, b, c))) == [(a, b), (c,)]
    assert max(len(each) for each in rounds(first(500, 1, SHAPE))) == 2
    assert next(rounds(draw(1, SHAPE))) == next(rounds(first(10, 1, SHAPE)))


def test_a_schedule_is_shrunk_to_the_faults_that_make_it_fail() -> None:
    whole = first(20, 5, SHAPE)
    needed = {whole[3], whole[11]}

    def fails(schedule: Schedule) -> bool:
        return needed <= set(schedule)

    assert shrink(whole, fails, 1.0, now=lambda: 0.0) == (whole[3], whole[11])
    assert shrink(whole, fails, 0.0, now=lambda: 0.0) == whole  # there is no time


# --- the judge ------------------------------------------------------------------------------------------------------


REFUSED = "seaway controller: --state state: controller.json is damaged"


def call(end: str = "ok", **options: object) -> Call:
    whole = {"begun": 99.5, "ended": 102.0, "ours": True, "pid": 7, "client": "train-0"} | options
    return msgspec.convert({"number": 1, "what": "steps", "end": end} | whole, Call)


def error(code: str = "host-lost", **options: object) -> Call:
    return call("error", **{"kind": "RunError", "code": code, "text": "the result of 'step' is lost: host 1"} | options)


def seen(*calls: Call, fault: str = "kill agent-1 restart=0.3", **options: object) -> RoundSeen:
    (made,) = parse(fault)
    found = RoundSeen(
        injected=[Injected(made, 100.0, over=100.3)], calls=list(calls), deaths=[], stood=104.0, resumed=104.5,
        ended=106.0, before={"agent-0": CALM}, after={"agent-0": CALM}, touched=frozenset({0}),
        islands={"train-0": (0,), "puts-1": (1,)},
    )  # fmt: skip
    for name, value in options.items():
        setattr(found, name, value)
    return found


def verdict(found: RoundSeen) -> Verdict:
    return judge(found, BOUNDS)


def test_outcomes_within_the_promises_are_no_failure() -> None:
    assert verdict(seen(call())).outcome == "ok"
    told = verdict(seen(error(), call(begun=104.0, ended=104.2)))
    assert (told.outcome, told.failed, told.codes, told.findings) == ("error", False, {"host-lost": 1}, [])
    assert (told.to_error, told.to_resume) == (2.0, 4.5)


def test_a_client_that_is_cut_off_itself_may_say_so_wherever_it_computes() -> None:
    found = seen(error("client-lost", client="puts-1"))
    found.injected += [Injected(parse("unplug client-puts-1 lasts=11")[0], 100.0, over=111.0)]
    assert verdict(found).outcome == "error"


@pytest.mark.parametrize(
    ("outcome", "words", "found"),
    [
        ("wrong", "'steps' of train-0: wrong numbers", seen(call("wrong"))),
        ("hang", "'put' of train-0 for 6.5 s",
         seen(call("", ended=None, what="put"), resumed=None, waiting="no good call of train-0")),
        ("hang", "2 x train-0: RunError .peer.", seen(error("peer"), error("peer"), resumed=None)),
        ("hang", "island i0 is forming", seen(stood=None, waiting="island i0 is forming")),
        ("died", "agent-0 .pid 9. ended by itself with -6", seen(deaths=[ProcessEnd(101.0, "agent-0", 9, -6, 0)])),
        ("died", "told to end, ended with 1", seen(deaths=[ProcessEnd(101.0, "agent-0", 9, 1, signal.SIGTERM)])),
        ("spread", "of puts-1 is not on the island", seen(error(client="puts-1"))),
        ("leak", "agent-0 has 671 threads, and had 40",
         seen(after={"agent-0": msgspec.structs.replace(CALM, threads=671)})),
        ("leak", "agent-0 has 2 children, and had 1",
         seen(after={"agent-0": msgspec.structs.replace(CALM, children=2)})),
        ("leak", "3 buffers, and nobody holds any", seen(quiet="3 buffers, and nobody holds any")),
        ("unnamed", "code 'peer' is no user's", seen(error("peer"))),
        ("unnamed", "does not name what is lost", seen(error(text="host 1 was lost"))),
        ("unnamed", "no error of Seaway's", seen(error("", kind="ValueError", ours=False))),
        ("unnamed", "does not name the cause", seen(error("user", text="Gloo all-reduce failed"))),
        ("unnamed", "no controller was started anew", seen(error("restart"))),
        ("needless", "in less than half a lease", seen(error(), fault="stop agent-1 lasts=0.7")),
        ("died", "controller .pid 9. ended by itself with 1",
         seen(deaths=[ProcessEnd(101.0, "controller", 9, 1, 0, REFUSED)], fault="kill controller")),
        ("unnamed", "ended without a named error",
         seen(deaths=[ProcessEnd(100.1, "controller", 9, 1, 0, "Traceback ...")], fault="flip controller lasts=3")),
        ("died", "agent-0 .pid 9. ended by itself with -6",
         seen(deaths=[ProcessEnd(100.1, "agent-0", 9, -6, 0)], fault="memory agent-0 lasts=3")),
        ("needless", "in less than half a lease", seen(error(), fault="clock agent-1 lasts=9")),
        ("late", "told 60.0 s after, bound 7.3 s", seen(error(ended=160.0))),
        ("late", "all stands 60.0 s after, bound 9.3 s", seen(call(), stood=160.0)),
    ],
)  # fmt: skip
def test_outcomes_beyond_the_promises_are_failures(outcome: str, words: str, found: RoundSeen) -> None:
    told = verdict(found)
    assert told.outcome == outcome
    assert told.failed
    with pytest.raises(AssertionError, match=words):
        raise AssertionError("\n".join(told.findings))


def test_a_process_may_refuse_or_be_killed_where_its_fault_says_so() -> None:
    assert not verdict(
        seen(deaths=[ProcessEnd(100.1, "controller", 9, 1, 0, REFUSED)], fault="flip controller lasts=3")
    ).failed
    assert not verdict(seen(deaths=[ProcessEnd(100.1, "agent-0", 9, -9, 0)], fault="memory agent-0 lasts=3")).failed


def test_a_forgiven_outcome_hides_no_other() -> None:
    found = seen(error("peer"), quiet="3 buffers, and nobody holds any")
    assert judge(found, BOUNDS).outcome == "leak"
    told = judge(found, BOUNDS, ("leak",))
    assert (told.outcome, len(told.findings)) == ("unnamed", 2)
    assert judge(found, BOUNDS, ("leak", "unnamed")).outcome == "error"


def test_a_call_of_a_client_that_was_killed_need_not_end() -> None:
    found = seen(call("", ended=None, what="put"), resumed=None, gone=frozenset({7}))
    assert "none open" in verdict(found).findings[0]


def test_an_error_must_name_a_restart_if_there_was_one() -> None:
    assert verdict(seen(error("restart"), fault="kill controller restart=0.3")).outcome == "error"
    assert verdict(seen(error("restart"), deaths=[ProcessEnd(101.0, "controller", 9, -9, 9)])).outcome == "error"


def test_bounds_follow_from_the_lease_and_from_the_length_of_a_fault() -> None:
    def bound(fault: str, over: float, lease: float = 3.0) -> float:
        return Bounds(lease, start=4.0).error_by([Injected(parse(fault)[0], 100.0, 100.0 + over)], 200.0) - 100.0

    assert bound("kill coordination-0", 0.0) == 3.0 + 3.0
    assert bound("kill coordination-0", 0.0, lease=10.0) == 10.0 + 3.0
    assert bound("kill agent-0 restart=3", 3.0) == 3.0 + 4.0 + 3.0  # until it is there again
    assert bound("stop controller lasts=15", 15.0) == 15.0 + 4.0 + 3.0
    assert bound("terminate agent-0", 5.0) == 3.0 + 20.0 + 3.0  # it is drained


def test_a_cluster_that_is_not_whole_says_why() -> None:
    host = {"host": 0, "connected": True, "member": True}
    island = {"name": "i0", "phase": "running", "hosts": [host], "stalled": 0, "under_way": 0, "late": []}
    whole = {"islands": [island], "runs": 0, "buffers": 0}
    assert standing(whole, quiet=True) == ""
    assert standing(None) == "the controller does not answer"
    assert "forming" in standing({**whole, "islands": [{**island, "phase": "forming"}]})
    assert "hosts 0" in standing({**whole, "islands": [{**island, "hosts": [{**host, "connected": False}]}]})
    assert "stalled" in standing({**whole, "islands": [{**island, "stalled": 1}]})
    assert standing({**whole, "buffers": 2}) == ""
    assert standing({**whole, "buffers": 2}, quiet=True) == "2 buffers, and nobody holds any"
    two = {**whole, "clients": [{"name": "jax-0"}, {"name": "jax-0"}]}
    assert standing(two, quiet=True, clients=2) == ""
    assert standing(two, quiet=True, clients=1) == "2 clients (jax-0, jax-0), and 1 have a session"


# --- the journal, processes and proxies -----------------------------------------------------------------------------


def test_a_journal_can_be_read_while_it_grows_even_if_its_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "j"
    reader, writer = journal.Reader("ann", path), journal.Writer(path, 11)
    reader.read()
    writer.begin("put")
    reader.read()
    assert [each.what for each in reader.calls] == ["put"]
    assert reader.open(11) is reader.calls[0]
    writer.end("error", code="host-lost", ours=True)
    with path.open("ab") as file:
        file.write(b'{"at": 1, "pi\n')  # it was killed here
    again = journal.Writer(path, 12)
    again.begin("get")
    again.paused()
    writer.close()
    again.close()
    reader.read()
    assert [(each.end, each.code) for each in reader.calls] == [("error", "host-lost"), ("", "")]
    assert reader.open(11) is None
    assert list(reader.paused) == [12]


def ticks(process: Process, over: Callable[[], bool]) -> list[ProcessEnd]:
    found = []
    end = time.monotonic() + 30
    while not over():
        assert time.monotonic() < end
        if (death := process.tick()) is not None:
            found.append(death)
    return found


def test_a_supervisor_restarts_a_process_and_says_whether_a_fault_ended_it(tmp_path: Path) -> None:
    process = Process("p", tmp_path / "log", lambda port: ["http.server", "--bind", "127.0.0.1", str(port)], 0)
    try:
        process.start()
        one = process.pid
        os.kill(one, signal.SIGABRT)
        (death,) = ticks(process, lambda: process.alive and process.pid != one)
        assert (death.code, death.meant, death.wrong) == (-signal.SIGABRT, 0, True)
        two = process.pid
        assert process.end(signal.SIGKILL, Policy(0.0))
        (death,) = ticks(process, lambda: process.alive and process.pid != two)
        assert (death.code, death.meant, death.wrong) == (-signal.SIGKILL, signal.SIGKILL, False)
        ticks(process, lambda: (held := usage(process.pid)) is not None and held.ports == 1)
    finally:
        process.quit()
    assert usage(process.pid) is None
    assert not process.alive


def test_a_process_left_behind_is_listed_until_it_ends() -> None:
    known = strays([])
    left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert strays(known) == [left.pid]
        assert strays([*known, left.pid]) == []
    finally:
        left.kill()
        left.wait()
        assert left.stdin is not None
        left.stdin.close()
    assert strays(known) == []


def proxied(work: Callable[[Proxy, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
    """Run with a connection, through the proxy, to a server that repeats what it receives."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async def drive() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        proxy = await Proxy(server.sockets[0].getsockname()[:2], delay=0.01).start()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        try:
            async with asyncio.timeout(30):
                await work(proxy, reader, writer)
        finally:
            writer.transport.abort()
            await proxy.stop()
            server.close()
            await asyncio.sleep(0)

    asyncio.run(drive())


@pytest.mark.parametrize("mode", ["hold", "up", "down"])
def test_a_held_proxy_keeps_messages_until_it_goes_on(mode: str) -> None:
    async def work(proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        await proxy.set(mode)
        writer.write(b"two")
        answer = asyncio.ensure_future(reader.readexactly(3))
        done, _ = await asyncio.wait([answer], timeout=0.2)
        assert not done
        await proxy.set("")
        assert await answer == b"two"

    proxied(work)


def test_a_cut_proxy_accepts_no_connection_until_it_goes_on() -> None:
    async def work(proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await proxy.set("delay")
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        await proxy.set("cut")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        other_reader, other = await asyncio.open_connection("127.0.0.1", proxy.port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await other_reader.readexactly(1)
        other.transport.abort()
        await proxy.set("")
        other_reader, other = await asyncio.open_connection("127.0.0.1", proxy.port)
        other.write(b"two")
        assert await other_reader.readexactly(3) == b"two"
        other.transport.abort()

    proxied(work)


# --- everything together --------------------------------------------------------------------------------------------


def chaos(*words: str) -> str:
    command = [sys.executable, "-m", "tests.chaos", "--slack", "10", *words]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_a_short_schedule_on_processes_breaks_no_promise() -> None:
    said = chaos("--platform", "timed", "--islands", "1", "--lease", "2", "--schedule",
                 "kill agent-1 restart=0.2; stop agent-0 lasts=3; kill controller restart=0.3")  # fmt: skip
    assert "kill controller" in said


@pytest.mark.full
def test_ten_minutes_on_cpu_devices_break_no_promise() -> None:
    chaos("--minutes", "10", "--seed", "1")


@pytest.mark.full
def test_jax_programs_on_one_island_and_on_both_break_no_promise() -> None:
    chaos("--minutes", "5", "--roles", "jax,slices", "--seed", "6")


@pytest.mark.full
def test_after_fifty_epochs_no_process_holds_more_than_after_the_first() -> None:
    """One thread or file more for each epoch would be noticed."""
    chaos("--islands", "1", "--minutes", "15", "--schedule", "kill coordination-0", "--repeat", "50")
