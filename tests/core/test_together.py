"""Arrays that are counted as one behave as if each were alone: the same calls are made twice, once with names of arrays
in ranges and once one by one, and all that a client, a device or a watcher of memory could see must be the same."""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.controller import Controller
from core.host import plans
from core.host.executor import Executor
from core.model import ranges
from core.model.program import Program
from core.model.topology import Cluster, Island
from core.protocol import effects as e
from core.protocol import messages as m
from tests.core.build import Build
from tests.laws import examples

HOST, CLIENT = 100, 1  # numbers of connections: that of host h is HOST + h
HOSTS = 2
MEMORY = 1200  # bytes: some runs wait for memory, and some buffers are moved to host memory
MANY = 5
LITERAL = bytes(16)
ARRAY = 16  # bytes


def make(many: int = MANY) -> Program:
    build = Build("make", s=HOSTS)
    x = build.arg("s", 4)
    build.call("make", "s", [x], [x.value] * many)
    return build.program(*[build.output(number) for number in range(many)])


def step(name: str, donate: bool, many: int = MANY) -> Program:
    build = Build(name, s=HOSTS)
    params = [build.arg("s", 4, donate=donate) for _ in range(many)]
    batch = build.arg("s", 4)
    given = tuple(range(many)) if donate else ()
    build.call(name, "s", [*params, batch], [batch.value] * (many + 1), donate=given)
    return build.program(*[build.output(number) for number in range(many + 1)])


def apart() -> Program:
    """Its arguments and results are not all treated alike."""
    build = Build("apart", s=HOSTS)
    a, b, c, d, e = [build.arg("s", 4, donate=number < 2) for number in range(MANY)]
    build.call("first", "s", [a, b, c], [a.value] * 4, donate=(0, 1))
    one, two, three, four = [build.output(number) for number in range(4)]
    build.call("second", "s", [c, d, two], [a.value] * 3, node="second")
    five, six, seven = [build.output(number) for number in range(3)]
    return build.program(one, two, five, six, seven, e, three, five, four)


def uneven() -> Program:
    """The sizes of its results are known when it has run."""
    build = Build("uneven", s=HOSTS)
    params = [build.arg("s", 4) for _ in range(2)]
    build.call("uneven", "s", params, [params[0].value] * 3, irregular=True)
    return build.program(*[build.output(number) for number in range(3)])


PROGRAMS = (make(), step("keep", False), step("give", True), apart(), uneven())


class World:
    """A controller, hosts whose devices answer when they are told to, and one client. `few`: see `ranges.folded`."""

    def __init__(self, few: int, programs: tuple[Program, ...] = PROGRAMS, memory: int = MEMORY) -> None:
        self.few = few
        island = Island(name="i", hosts=HOSTS, devices_per_host=1, memory=memory, host_memory=1 << 20)
        self.controller = Controller(Cluster((island,)))
        self.executors: dict[int, Executor] = {}
        self.seen: list[Any] = []  # what a client and devices see
        self.forgotten: list[tuple[int, int]] = []  # (host, plan)
        self.due: list[tuple[int, e.Event]] = []  # what devices have to say, by host
        self.now = 0
        for host in range(HOSTS):
            self.start(host, 0)
        self.say(CLIENT, m.Open("client"))
        for number, program in enumerate(programs, 1):
            self.say(CLIENT, m.Register(number, program))
        self.seen.clear()

    def start(self, host: int, incarnation: int) -> None:
        self.executors[host] = Executor(host, self.controller.cluster, incarnation=incarnation)
        self.say(HOST + host, m.Join(host, incarnation))

    def call(self, call: m.Call) -> None:
        """Of a client that names arrays one by one."""
        if isinstance(call, m.Submit):
            args, results = ranges.folded(call.args, self.few), ranges.folded(call.results, self.few)
            call = msgspec.structs.replace(call, args=args, results=results)
        elif isinstance(call, m.Release):
            call = m.Release(ranges.folded(call.buffers, self.few))
        self.say(CLIENT, call)

    def say(self, peer: int, message: Any) -> None:
        self.tell(e.MessageReceived(peer, message))

    def tell(self, event: e.Event) -> None:
        self.now += 1
        for effect in self.controller.handle(event, self.now):
            if isinstance(effect, e.FormWorld):
                self.tell(e.WorldUp(effect.island, effect.epoch))
            elif isinstance(effect, e.Send):
                for peer in effect.peers:
                    self.hear(peer, effect.message)
            elif isinstance(effect, e.LogLine):
                self.seen.append(effect.text)

    def hear(self, peer: int, said: Any) -> None:
        if peer >= HOST:
            host = peer - HOST
            if host in self.executors and isinstance(said, m.Ordered | m.Seat):
                self.run(host, said)
            return
        for note in said.notes if isinstance(said, m.ClientMessages) else (said,):
            if isinstance(note, m.ContentsReady):
                self.seen += [("ready", name, note.blame) for name in ranges.each(note.buffers)]
            else:
                self.seen.append(note)

    def run(self, host: int, event: Any) -> None:
        with patch.object(plans, "FEW", self.few):
            effects = self.executors[host].handle(event, self.now)
        for effect in effects:
            match effect:
                case e.ToController(report=report):
                    island = self.controller.state.islands[0]
                    message = report if isinstance(report, m.Seated) else m.Reports(
                        0, island.epoch, island.tree_number, (report,)
                    )  # fmt: skip
                    self.say(HOST + host, message)
                case e.CompileCode(plan=plan, code=code):
                    self.run(host, e.CodeReady(plan, code))
                case e.Reform(epoch=epoch):
                    self.run(host, e.Reformed(epoch))
                case e.Launch(seq=seq):
                    made = (effect.inputs, effect.outputs, effect.donated, effect.placeholders, effect.causes)
                    self.seen.append((host, "launch", seq, *made))
                    self.due.append((host, e.Finished(seq, None, self.sizes(effect))))
                case e.FreeBuffer():
                    self.seen += [(host, "free", buffer, effect.causes) for buffer in effect.buffers]
                case e.SpillBuffer(seq=seq) | e.RestoreBuffer(seq=seq):
                    self.seen.append((host, effect))
                    self.due.append((host, e.Copied(seq)))
                case e.ForgetPlan(plan=plan):
                    self.forgotten.append((host, plan))
                case e.OpenSend(transfer=transfer):
                    self.seen.append((host, effect))
                    self.due.append((host, e.Sent(transfer)))
                case e.Abandon(seqs=seqs):
                    self.due = [each for each in self.due if each[0] != host or _seq(each[1]) not in seqs]
                case _:
                    self.seen.append((host, effect))

    def sizes(self, launch: e.Launch) -> tuple[int, ...]:
        plan = self.executors[0].plan_of(launch.run)
        return (1, 2, 4) if plan is not None and plan.program == "uneven" else ()

    def answer(self, number: int, blame: m.Blame | None) -> None:
        """A device has done what it was told to: the first such thing of a host."""
        hosts = list(dict.fromkeys(host for host, _ in self.due))
        if not hosts:
            return
        host = hosts[number % len(hosts)]
        at = next(at for at, (each, _) in enumerate(self.due) if each == host)
        _, event = self.due.pop(at)
        if blame is not None and isinstance(event, e.Finished):
            event = e.Finished(event.seq, blame)
        self.run(host, event)

    def crash(self, host: int) -> None:
        self.executors.pop(host)
        self.due = [each for each in self.due if each[0] != host]
        self.tell(e.Disconnected(HOST + host, "it crashed"))
        self.start(host, self.now)

    def state(self) -> dict[str, Any]:
        """All that is counted, array by array."""
        controller = self.controller
        buffers, names = {}, {}
        for record in controller.buffers:
            for at in range(record.count):
                buffers[record.id + at] = (
                    record.name and record.name + at, record.state, record.blame, record.holds, record.handle,
                    record.promise, record.users, record.on_device, record.taken, record.last_seq,
                    record.last_used and record.last_used + at, (record.sizes or (record.nbytes,))[at],
                    (record.layouts or (record.layout,))[at],
                )  # fmt: skip
        (session,) = controller.state.sessions.values()
        for named in session.names.values():
            for at in range(named.count):
                buffer = named.buffer + at if named.buffer >= 0 else -1
                names[named.name + at] = (buffer, named.ready, named.blame, sorted(named.readers))
        runs = {run.id: (run.state, run.waits, run.blame, run.donated) for run in controller.state.runs.values()}
        return {
            "seen": self.seen, "buffers": buffers, "names": names, "runs": runs, "left": controller.left(),
            "forgotten": sorted(self.forgotten),  # plans that nobody needs are forgotten in any order
            "memory": controller.ledger.counters(), "due": [host for host, _ in self.due],
            "held": [
                sorted(executor.describe().held, key=lambda held: held.buffer)
                for _, executor in sorted(self.executors.items())
            ],
        }  # fmt: skip


def _seq(event: Any) -> int:
    return getattr(event, "seq", -1)


class Twins:
    """Both worlds, and the user of both."""

    def __init__(self) -> None:
        self.worlds = World(2), World(1 << 60)
        self.top, self.runs, self.gets = 0, 0, 0
        self.held: list[int] = []

    def both(self, act: Any) -> None:
        for world in self.worlds:
            act(world)
        together, alone = (world.state() for world in self.worlds)
        for what in alone:
            assert together[what] == alone[what], what

    def submit(self, program: int, args: list[int], keep: list[bool]) -> None:
        ir = PROGRAMS[program]
        given: list[int | bytes] = [*args, *[LITERAL] * (len(ir.args) - len(args))]
        results = []
        for wanted in keep[: len(ir.results)]:
            self.top += wanted
            results.append(self.top if wanted else 0)
        self.runs += 1
        call = m.Submit(self.runs, program + 1, tuple(given), tuple(results))
        self.both(lambda world: world.call(call))
        gone = {args[at] for at in ir.donate_args if at < len(args)}
        self.held = [name for name in self.held if name not in gone] + [name for name in results if name]

    def release(self, names: list[int]) -> None:
        self.held = [name for name in self.held if name not in names]
        self.both(lambda world: world.call(m.Release(tuple(names))))

    def get(self, name: int) -> None:
        self.gets += 1
        call = m.Get(self.gets, name)
        self.both(lambda world: world.call(call))


def some(draw: Any, held: list[int], count: int) -> list[int]:
    """Mostly neighbours."""
    if draw(st.integers(0, 3)):
        start = draw(st.integers(0, len(held) - count))
        return held[start : start + count]
    found: list[int] = draw(st.permutations(held))
    return found[:count]


def act(twins: Twins, draw: Any) -> None:
    what = draw(st.sampled_from(["make", "run", "run", "run", "answer", "answer", "answer", "release", "get", "crash"]))
    held = twins.held
    if what == "make":
        twins.submit(0, [], [True] * MANY)
    elif what == "run":
        program = draw(st.integers(1, 4))
        count = min(MANY if program < 4 else 2, len(held), len(PROGRAMS[program].args))
        keep = [True] * 9 if draw(st.booleans()) else draw(st.lists(st.booleans(), min_size=9, max_size=9))
        args = some(draw, held, count)
        if program == 1 and args and draw(st.booleans()):  # an argument is passed twice
            args[draw(st.integers(0, count - 1))] = args[0]
        twins.submit(program, args, keep)
    elif what == "answer":
        number, bad = draw(st.integers(0, 1)), draw(st.integers(0, 15)) == 0
        twins.both(lambda world: world.answer(number, m.Blame("user", "nan") if bad else None))
    elif what == "release" and held:
        twins.release(some(draw, held, draw(st.integers(1, min(7, len(held))))))
    elif what == "get" and held:
        twins.get(draw(st.sampled_from(held)))
    elif what == "crash" and draw(st.integers(0, 7)) == 0:
        host = draw(st.integers(0, HOSTS - 1))
        twins.both(lambda world: world.crash(host))


@examples(40)
@given(st.data())
def test_arrays_that_are_counted_as_one_behave_as_if_each_were_alone(data: st.DataObject) -> None:
    twins = Twins()
    for _ in range(data.draw(st.integers(1, 40))):
        act(twins, data.draw)
    for _ in range(400):  # all that is under way ends
        twins.both(lambda world: world.answer(0, None))
        if not any(world.due for world in twins.worlds):
            break


def test_plans_that_runs_of_a_lost_host_needed_are_forgotten_in_any_order() -> None:
    twins = Twins()
    twins.submit(0, [], [True] * MANY)
    twins.submit(2, twins.held[:MANY], [number in (0, 3) for number in range(9)])
    for _ in range(2):
        twins.submit(0, [], [True] * MANY)
    for program in (1, 2):
        twins.submit(program, twins.held[:MANY], [False] * 9)
    twins.both(lambda world: world.crash(0))


def calls_a_step(many: int, donate: bool, apart: bool) -> int:
    """Python calls in controller and executors, for a step that is fed the results of the step before."""
    world = World(ranges.FEW, (make(many), step("step", donate, many)), memory=1 << 20)
    names = range(1, many + 1)
    world.call(m.Submit(1, 1, (LITERAL,), tuple(names)))
    count, before = 0, 0

    def counted(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call" and "/core/" in frame.f_code.co_filename and "/tests/" not in frame.f_code.co_filename

    for run in range(2, 8):
        made = range(names[-1] + 2, names[-1] + many + 3)
        before = count
        sys.setprofile(counted)
        world.call(m.Submit(run, 2, (*names, LITERAL), tuple(made)))
        if not donate:
            world.call(m.Release(tuple(names)))
        world.call(m.Get(run, made[-1])) if apart else world.call(m.Release((made[-1],)))
        for _ in range(2 * HOSTS):
            world.answer(0, None)
        sys.setprofile(None)
        names = made[:-1]
    return count - before


@pytest.mark.parametrize("apart", [False, True], ids=["", "and its loss is read"])
@pytest.mark.parametrize("donate", [False, True], ids=["kept", "donated"])
def test_a_step_of_a_thousand_arrays_costs_hardly_more_calls_than_a_step_of_ten(donate: bool, apart: bool) -> None:
    few, many = calls_a_step(10, donate, apart), calls_a_step(1000, donate, apart)
    assert few < many + 50  # both were counted
    assert many < 1.2 * few
