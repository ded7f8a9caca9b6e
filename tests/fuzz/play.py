"""Plays a case in the in-memory world and judges it.

A case must show no violation, no exception, no hang, no wrong contents and nothing left over. First its actions happen,
with all invariants checked after every event. Then all faults end and lost hosts come back. Every run must end in
bounded time, and successful runs must have the right contents. Then all is released, and nothing may be left.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Any

import msgspec

from core.model import spans
from core.model.errors import Illegal
from core.model.topology import Cluster
from core.protocol import effects as e
from core.transfer import at_once
from tests.invariants import Checks, CountersAddUp, Violation, everything
from tests.world.script import Fetch, Handle, RunHandle, Script
from tests.world.timing import Timing
from tests.world.world import World

from . import case as c
from . import one_way
from .case import ALL, LITERAL, MS, Case, S, Setup
from .checks import LiveController, Members, Windows
from .judging import Failed, judge_fetch, judge_run, judge_told
from .old_states import Operator
from .policies import RESERVING, maker
from .reserved_rows import ReservedRows
from .rests import Rests
from .waiting import who_waits

LEASE = 80 * MS
EVENTS = 120_000  # more than any case needs
PATIENCE = 6 * S  # simulated time in which all must end once all faults have ended ...
LEAVES = 12 * S  # ... if no slice may still try to leave its devices, as a policy wants (`placements.LEAVE`)

# Actions after which a run may have any of the blames ANY.
WEATHER = (
    "OperateHost", "StandStill", "CrashHost", "LeaveHost", "LoseDevice", "Cut", "Slow", "CrashClient", "Restart",
    "OldState",
)  # fmt: skip
ANY = {"host-lost", "host-left", "timeout", "restart", "client-lost", "user", "no-memory", "cancelled", "refused",
       "device-lost", "lost", "protocol"}  # fmt: skip


class Result(msgspec.Struct):
    kind: str = ""  # of the failure; "" if there is none
    text: str = ""
    digest: str = ""
    events: int = 0
    diary: list[str] = []
    stack: str = ""

    @property
    def good(self) -> bool:
        return not self.kind


def play(case: Case, diary: bool = False, check: bool = True) -> Result:
    try:
        game = Game(case, diary, check)
    except Exception as error:  # every exception is a failure
        stack = "".join(traceback.format_tb(error.__traceback__)[-6:])
        return Result(f"exception {type(error).__name__}", str(error), stack=stack)
    result = Result()
    try:
        game.play()
    except Failed as failed:
        result.kind, result.text = failed.kind, failed.text
    except Violation as violation:
        recent = "\n".join(f"    {seen}" for seen in violation.recent[-8:])
        result.kind = f"violation of {violation.checker}"
        result.text = f"{violation.text}\n  seen just before:\n{recent}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename.rsplit('/', 2)[-2]}/{last.filename.rsplit('/', 1)[-1]}:{last.lineno}"
        result.kind = f"exception {type(error).__name__} at {place}"
        result.text, result.stack = str(error), "".join(traceback.format_tb(error.__traceback__)[-6:])
    result.events = game.events
    result.digest = game.digest()
    result.diary = game.world.diary or []
    return result


def cluster(setup: Setup, part: c.Begin = (0, 0)) -> Cluster:
    """All of it, or only the first islands, and so many hosts of the last of them."""
    islands: list[dict[str, Any]] = [{"name": f"i{number}", **island} for number, island in enumerate(setup.islands)]
    number, hosts = part
    if number:
        islands = [*islands[: number - 1], {**islands[number - 1], "hosts": hosts}]
    return Cluster.from_table({"island": islands})


class Game:
    def __init__(self, case: Case, diary: bool, check: bool) -> None:
        self.case, self.events = case, 0
        setup = case.setup
        timing = Timing(
            latency=setup.latency, jitter=setup.jitter, reach=setup.reach, compile=setup.compile, lease=LEASE,
            beat=LEASE // 4,
        )  # fmt: skip
        self.world = world = World(
            cluster(setup), case.seed, maker(setup.policy, Random(case.seed + 1)), setup.config(), timing=timing,
            lane=setup.lane, pool=setup.pool, chunk=setup.chunk, check=check, diary=diary, start=False,
            on_wire=case.seed % 8 == 0, traced=setup.policy in RESERVING, accounts=setup.accounts_of(),
            known=cluster(setup, setup.begins),
        )  # fmt: skip
        if check:
            controller = LiveController(world)
            checkers = [
                *everything(pool=setup.pool, short=at_once(setup.pool, setup.chunk)),
                CountersAddUp(controller),
                Windows(controller),
                Members(controller),
            ]
            if world.traced:
                checkers.append(ReservedRows(controller, world.cluster))
            world.checks = Checks(checkers)
        world.fabric.disk_fails, world.fabric.damaged = setup.disk_fails, setup.damaged
        world.restart_controller()
        for host in range(world.cluster.hosts):
            world.return_host(host)
        self.people: list[Script | None] = [None] * len(setup.people)
        self.made: dict[tuple[int, int], Handle] = {}
        self.runs: dict[int, RunHandle] = {}  # by key
        self.owner: dict[int, int] = {}
        # by key: client, program, its number for the registration
        self.asked: dict[int, tuple[int, int, int]] = {}
        self.done: dict[str, int] = {}  # kind of action -> how many of them took effect
        self.gone: dict[int, None] = {}  # clients that crashed or closed
        self.operator, self.rests = Operator(world), Rests(world)
        self.acts: dict[type, Callable[[Any], None]] = {
            c.Submit: self._submit, c.Put: self._put, c.Get: self._get, c.Release: self._release,
            c.View: self._view, c.Cancel: self._cancel, c.Stop: self._stop, c.Close: self._close,
            c.CrashClient: self._crash_client, c.CrashHost: self._crash_host, c.LeaveHost: self._leave,
            c.LoseDevice: self._lose,
            c.Cut: self._cut, c.Slow: self._slow, c.BreakGang: self._break_gang,
            c.BreakCode: self._break_code, c.Restart: self._restart, c.StandStill: self._stand_still,
            c.BreakWorld: self._break_world, c.Register: self._register, c.Unregister: self._unregister,
            c.AskElastic: self._elastic, c.OldState: self._old_state,
            c.Operate: self._operate, c.OperateHost: self._operate_host,
            c.Grow: lambda action: self.world.grow(cluster(setup, action.to), action.come),
        }  # fmt: skip

    # --- the whole ------------------------------------------------------------------------------------------------

    def play(self) -> None:
        arrivals = [(person.at, 0, number) for number, person in enumerate(self.case.setup.people)]
        actions = [(action.at, 1, number) for number, action in enumerate(self.case.actions)]
        for at, kind, number in sorted(arrivals + actions):
            self._until(at)
            if kind:
                self._act(self.case.actions[number])
            else:
                self._arrive(number)
        self._until(one_way.longest(self.case.actions))
        self._mend()
        self._settle()
        self._judge()
        self._leave_all()

    def digest(self) -> str:
        """Return a hash of all that happened, and of one more random number."""
        world = self.world
        ends = [(run.ended_at, run.blame and run.blame.code) for run in self.runs.values()]
        network, rng = world.network, world.random
        facts = (world.now, self.events, network.sent, world.gangs, ends, world.told, rng.random())
        return f"{hashed(repr(facts))}{world.digest() if world.diary is not None else ''}"

    # --- time -----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        self.events += 1
        if self.events > EVENTS:
            raise Failed("too many events", who_waits(self.world, self._living(), self.events))
        self.world._step()
        self.rests.look()

    def _until(self, at: int) -> None:
        while (time := self.world.clock.next_time()) is not None and time <= at:
            self._step()
        self.world.clock.now = max(self.world.clock.now, at)

    def _while(self, busy: Callable[[], bool], patience: int) -> bool:
        """Go on while busy. Return whether this ended in time."""
        clock = self.world.clock
        last = clock.now + patience
        while busy():
            time = clock.next_time()
            if time is None or time > last:
                return False
            self._step()
        return True

    # --- what clients do ------------------------------------------------------------------------------------------

    def _act(self, action: c.Action) -> None:
        client = getattr(action, "client", None)
        if client is not None and (client in self.gone or self.people[client] is None):
            return
        if client is not None and self._person(client).actor.still and not isinstance(action, c.CrashClient):
            return  # a client whose process is stopped makes no calls
        try:
            self.acts[type(action)](action)
        except Illegal as illegal:
            if not self._excused(str(illegal)):
                raise

    def _excused(self, text: str) -> bool:
        """Whether this error is allowed: a client that lost its session learns of that by its next call."""
        return "the session is over" in text and any(self.done.get(kind) for kind in WEATHER)

    def _arrive(self, number: int) -> None:
        person = self.case.setup.people[number]
        self.people[number] = self.world.client(person.name, person.weight, person.priority)

    def _person(self, number: int) -> Script:
        found = self.people[number]
        assert found is not None
        return found

    def _usable(self, client: int, source: tuple[int, int]) -> Handle | None:
        """Return the buffer if this client holds it, as far as it knows."""
        handle = self.made.get(source)
        if handle is None or handle.released or handle.name == 0 or self.owner[source[0]] != client:
            return None
        return handle

    def _submit(self, action: c.Submit) -> None:
        script, program = self._person(action.client), self.case.programs[action.program]
        args: list[Handle | bytes] = []
        used: list[Handle] = []
        for index, source in enumerate(action.args):
            handle = self._usable(action.client, source) if source != LITERAL else None
            if handle is None or handle in used or (handle.blame is not None and index in program.donate_args):
                args.append(bytes([action.key % 256]) * program.args[index].nbytes)
            else:
                args.append(handle)
                used.append(handle)
        if sum(len(arg) for arg in args if isinstance(arg, bytes)) > 4096:
            return
        run = script.submit(program, *args, keep=action.keep, dispatch=action.dispatch, deadline=action.deadline)
        self.runs[action.key], self.owner[action.key] = run, action.client
        for index, handle in enumerate(run.results):
            self.made[action.key, index] = handle

    def _register(self, action: c.Register) -> None:
        number = self._person(action.client).register(self.case.programs[action.program], tell=True, anew=True)
        self.asked[action.key] = action.client, action.program, number

    def _unregister(self, action: c.Unregister) -> None:
        if action.key in self.asked:
            self._person(action.client).unregister(self.asked.pop(action.key)[2])

    def _put(self, action: c.Put) -> None:
        if action.parent is not None:
            both = {action.slice, action.parent}
            program = next(each for each in self.case.programs if both <= set(each.slices))
            self._person(action.client).register(program)
        self.made[action.key, 0] = self._person(action.client).put(action.value, action.slice)
        self.owner[action.key] = action.client

    def _view(self, action: c.View) -> None:
        usable = [(self._usable(action.client, source), shard) for source, shard in action.of]
        if len(there := [(handle, shard) for handle, shard in usable if handle is not None]) == len(usable):
            self._note(action)
            self.made[action.key, 0] = self._person(action.client).view(action.value, action.slice, *there)
            self.owner[action.key] = action.client

    def _get(self, action: c.Get) -> None:
        handle = self._usable(action.client, action.of)
        if handle is not None:
            self._person(action.client).get(handle, action.at % (handle.shards + 1) - 1)

    def _release(self, action: c.Release) -> None:
        handle = self._usable(action.client, action.of)
        if handle is not None:
            self._person(action.client).release(handle)

    def _cancel(self, action: c.Cancel) -> None:
        run = self.runs.get(action.key)
        if run is not None:
            self._note(action)
            self._person(action.client).cancel(run)

    def _stop(self, action: c.Stop) -> None:
        run = self.runs.get(action.key)
        if run is not None:
            self._note(action)
            self._person(action.client).stop(run)

    def _close(self, action: c.Close) -> None:
        self._note(action)
        self._person(action.client).close()
        self.gone[action.client] = None

    # --- faults ---------------------------------------------------------------------------------------------------

    def _note(self, action: c.Action) -> None:
        name = type(action).__name__
        self.done[name] = self.done.get(name, 0) + 1

    def _crash_client(self, action: c.CrashClient) -> None:
        self._note(action)
        self.world.crash_client(self._person(action.client).name)
        self.gone[action.client] = None

    def _crash_host(self, action: c.CrashHost) -> None:
        self._note(action)
        self.world.crash_host(action.host)
        if action.back:
            self.world.soon(action.back, self._return, action.host)

    def _return(self, host: int) -> None:
        if not self.world.hosts[host].alive:
            self.world.return_host(host)

    def _old_state(self, action: c.OldState) -> None:
        self._note(action)
        self.operator.start_older(action)

    def _leave(self, action: c.LeaveHost) -> None:
        self._note(action)
        if self.world.hosts[action.host].alive:
            self.world.leave_host(action.host, patience=action.patience)

    def _lose(self, action: c.LoseDevice) -> None:
        self._note(action)
        if self.world.hosts[self.world.cluster.host_of(action.device)].alive:
            self.world.lose_device(action.device)

    def _cut(self, action: c.Cut) -> None:
        self._note(action)
        if action.one not in self.world.actors or action.other not in self.world.actors:
            return
        if action.one_way:
            one_way.cut(self.world, action)
        else:
            self.world.cut(action.one, action.other, action.silent)
        if action.mend:
            self.world.soon(action.mend, self.world.mend, action.one, action.other)

    def _slow(self, action: c.Slow) -> None:
        self._note(action)
        self.world.slow(action.host, action.factor, action.lag)

    def _break_gang(self, action: c.BreakGang) -> None:
        self._note(action)
        for host in range(self.world.cluster.hosts) if action.host == ALL else (action.host,):
            self.world.break_gang(host, action.name, action.when)

    def _break_world(self, action: c.BreakWorld) -> None:
        self._note(action)
        self.world.break_world(action.island)

    def _break_code(self, action: c.BreakCode) -> None:
        self._note(action)
        self.world.break_code(action.name)

    def _restart(self, action: c.Restart) -> None:
        self._note(action)
        self.rests.restarts(self._living())
        self.world.restart_controller()

    def _stand_still(self, action: c.StandStill) -> None:
        self._note(action)
        if action.who in self.world.actors:
            self.world.stand_still(action.who, action.length)

    def _elastic(self, action: c.AskElastic) -> None:
        self._person(action.client).elastic("elastic", action.sizes, action.like, action.after)

    def _operate(self, action: c.Operate) -> None:
        script = self.people[action.of]
        if script is not None:
            self.rests.forget(script)
        if action.itself and script is not None and action.of not in self.gone and not script.actor.still:
            script.relocate(action.what)  # type: ignore[arg-type]
        elif script is not None and script.actor.number:
            there = 0 <= action.away < self.world.known.hosts
            away = spans.one(action.away) if there else spans.EMPTY
            self.world.controller.feed(e.OperateSlices(script.actor.number, action.what, away=away))  # type: ignore[arg-type]

    def _operate_host(self, action: c.OperateHost) -> None:
        if action.patience:
            self._note(action)
        self.world.controller.feed(e.OperateHost(action.host, action.what, action.patience))  # type: ignore[arg-type]
        if action.what == "uncordon":
            self._return(action.host)

    def _lift(self) -> None:
        """The operator takes all back, and starts agents again that have ended or will."""
        self.rests.ended = True
        self.world.drained_stay_away = False
        if self.world.machine.cluster != self.world.cluster:
            self.world.grow(self.world.cluster)
        for host in range(self.world.cluster.hosts):
            if self.world.machine.resources.is_cordoned(host):
                self.world.controller.feed(e.OperateHost(host, "uncordon"))
        for number in list(self.world.machine.state.sessions):
            self.world.controller.feed(e.OperateSlices(number, "resume"))
        asked = {action.of for action in self.case.actions if isinstance(action, c.Operate) and action.itself}
        for number in asked - self.gone.keys():  # behind what it has asked for itself, and may still be on its way
            if (script := self.people[number]) is not None and script.machine.state in ("new", "open", "away"):
                script.relocate("resume")

    # --- the end of all faults ------------------------------------------------------------------------------------

    def _mend(self) -> None:
        world = self.world
        for actor in world.actors.values():
            actor.go_on(timer_first=False)
        self.operator.end()
        self._lift()
        world.mend_all()
        world.fabric.failures.clear()
        for host in range(world.cluster.hosts):
            world.slow(host, 1.0)
            world.hosts[host].leaving = False  # so that it comes back after it has left
            mine = world.fabric.hosts.get(host)
            if mine is not None and mine.dead:
                world.crash_host(host)
            if not world.hosts[host].alive:
                world.return_host(host)

    def _living(self) -> list[Script]:
        return [s for number, s in enumerate(self.people) if s is not None and number not in self.gone]

    def _open(self) -> bool:
        return any(script.outstanding() for script in self._living())

    def _settle(self) -> None:
        """Let every run, put and get end.

        A client that waits for another client's exclusive slice gets it when that client ends, so end clients.
        """
        while not self._while(self._unsettled, S if self._for_slices() else PATIENCE):
            living = self._living()
            if not self._for_slices() or len(living) == 1:
                if self._while(self._unsettled, LEAVES if self.case.setup.policy == "placing" else PATIENCE):
                    return
                raise Failed("hang", who_waits(self.world, self._living(), self.events))
            idle = [script for script in living if not script.outstanding()]
            first = (idle or living)[0]
            first.close()
            self.gone[self.people.index(first)] = None

    def _unsettled(self) -> bool:
        """Whether a client waits, or a slice waits to come back; those that gave way do so by themselves."""
        machine = self.world.machine
        away = [each for each in machine.relocation.under_way.values() if each not in machine.preemption.away]
        return self._open() or any(each.phase == "returning" for each in away)

    def _for_slices(self) -> bool:
        """Whether a run or put waits for a slice, perhaps because another client has an exclusive slice."""
        resources = self.world.machine.resources
        exclusive = any(binding.spec.exclusive for binding in resources._bindings.values())
        return exclusive and bool(resources.waiting())

    # --- the judgement --------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Check that failed runs have a plausible blame, and that results of the others have the right contents."""
        self._no_faults()
        self.operator.judge(self.case, lambda busy: self._while(busy, PATIENCE))
        for key, run in self.runs.items():
            if self.owner[key] not in self.gone:
                judge_run(key, run, self._possible())
        for client, program, number in self.asked.values():
            if client not in self.gone:
                judge_told(self._person(client), self.case.programs[program], number, self._possible())
        fetches: list[Fetch] = []
        for source, handle in self.made.items():
            if self.owner[source[0]] in self.gone or self._usable(self.owner[source[0]], source) is None:
                continue
            script = self._person(self.owner[source[0]])
            if handle.blame is None and script.machine.state == "open":
                fetches.append(script.get(handle))
        self._settle()  # a get may wait for a suspended slice, whose devices another client has alone
        for script in self._living():
            for fetch in script.fetches.values():
                judge_fetch(script, fetch, self._possible())
        self._no_faults()

    def _possible(self) -> set[str]:
        """Return the blame codes that the actions of this case can explain."""
        if any(self.done.get(kind) for kind in WEATHER):
            return ANY | {"world"} if self.done.get("BreakWorld") else ANY
        found = set()
        if self.done.get("Cancel"):
            found.add("cancelled")
        if self.done.get("BreakGang") or self.done.get("BreakCode"):
            found |= {"user"}
        if self.done.get("BreakWorld"):
            found |= {"world"}
        if self.case.setup.damaged:
            found |= {"lost"}
        if not self.case.setup.roomy:
            found |= {"no-memory"}
        if self.case.setup.begins != (0, 0):
            found |= {"refused"}  # it may be too small, at first
        if any(spec.absent == "fail" for program in self.case.programs for spec in program.slices):
            found |= {"host-lost"}  # hosts may come later than calls
        return found

    def _no_faults(self) -> None:
        if self.world.faults:
            raise Failed("fault", "; ".join(self.world.faults[:3]))

    def _leave_all(self) -> None:
        """Let some clients close and others release everything. Check that nothing is left when leases are over."""
        world = self.world
        for living in self._living():
            living.moves_on = -1
        # One that was cut off waits for nothing any more, and may come back later with what it holds.
        self._while(lambda: any(script.machine.state == "away" for script in self._living()), PATIENCE)
        for number, script in enumerate(self.people):
            if script is None or number in self.gone or script.machine.state != "open":
                continue
            if number % 2:
                script.close()
            else:
                script.release_all()
        self._until(world.now + 4 * LEASE + 700 * MS)
        # A restarted controller keeps the buffers that it found for a while, for clients that may still come.
        self._while(lambda: any(map(world.machine.watch.waits_for, ("recovery", "claims"))), PATIENCE)
        self._while(lambda: bool(world.clock.pending), PATIENCE)
        self._no_faults()
        if world.checks is not None:
            world.checks.at_rest(world.now)
        for what, left in self._left():
            if left:
                raise Failed("left over", f"{what}: {left}\n  {who_waits(self.world, self._living(), self.events)}")
        for island in world.machine.state.islands:
            if island.phase != "running":
                waits = who_waits(self.world, self._living(), self.events)
                raise Failed("hang", f"island {island.island.name} {island.phase} does not run\n  {waits}")

    def _left(self) -> list[tuple[str, Any]]:
        world, controller = self.world, self.world.machine
        hosts = world.fabric.hosts
        return [
            ("buffers", len(controller.buffers)),
            ("runs", len(controller.state.runs)),
            ("operations in flight", len(controller.state.in_flight)),
            ("in the line for memory", len(controller.state.line)),
            ("buffers on hosts", {h: list(mine.buffers) for h, mine in hosts.items() if mine.buffers}),
            ("memory of devices", {h: mine.used for h, mine in hosts.items() if any(mine.used.values())}),
            ("gangs on devices", [job.seq for job in world.fabric.jobs.values()]),
        ]


def hashed(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()
