"""Reads a workload from a controller's event log: each client's calls in order, and the runs each call waited for.

Names of programs, runs and buffers are the clients' own, as in their calls. Only a `Submit` says which runs were
waited for and how long the user thought. Other calls have only a time. If one came after the end of a run that the next
`Submit` waited for, it is assumed to have waited for that run too. (Except a get, which is made at once: a client that
waits for a run whose contents it fetches waits for the contents.)

`whatif_runs` makes simulated clients repeat the calls; `call_durations` has the computations' times.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from backend.server import eventlogs
from core import protocol as p
from core.client import Limits
from core.controller import Config
from core.model import Cluster, Impossible, Program, SeawayError, SliceSpec, ranges
from core.record import Diverged, Log, Trace, replayed
from core.schedule.policy import Policy

from .recorded_places import Places, PlacesSeen

NOT_KNOWN = -1
LEAST = 10_000_000  # nanoseconds: a smaller mean is only the time of messages, and nothing was compiled
CROWDED = Limits().max_runs * 9 // 10  # runs under way from which a client may have been blocked


class RecordedCall(NamedTuple):
    """A call, and when the controller heard it.

    `waited`: runs that the client waited for before it. `gap`: nanoseconds, by the controller's clock, from the last
    thing waited for (or the previous `Submit`, or the opening) to this call. `contents`: the last thing waited for were
    contents, which the client had before the controller heard of it. `before`: for a call within a think time that the
    next `Submit` records: (that think time, number of calls until that `Submit`). `crowded`: the client had about as
    many runs under way as allowed, so it probably waited for room rather than thought.
    """

    at: int
    call: Any
    waited: tuple[int, ...]
    gap: int
    contents: bool = False
    before: tuple[int, int] | None = None
    crowded: bool = False


class RecordedClient(NamedTuple):
    """A recorded client."""

    name: str
    label: str  # unique: `name`, `name (2)`
    number: int  # the controller's number for it
    weight: int
    priority: int
    opened: int
    calls: tuple[RecordedCall, ...]
    left: bool  # it closed its session

    def programs(self) -> Iterator[tuple[int, Program]]:
        for made in self.calls:
            if isinstance(made.call, p.Register):
                yield made.call.program, made.call.ir

    @property
    def runs(self) -> int:
        return sum(isinstance(made.call, p.Submit) for made in self.calls)


class Workload(NamedTuple):
    people: tuple[RecordedClient, ...]
    cluster: Cluster
    config: Config
    make: Callable[[], Policy]  # the policy that it ran under
    policy: str  # its name, for people
    trace: Trace  # of the record, as its controller saw it
    compiling: int  # nanoseconds that hosts took to compile a code, on average; 0: next to none
    lost_hosts: int  # connections of hosts that were lost while clients had runs
    places: Places  # of shared slices

    @property
    def start(self) -> int:
        return min(person.opened for person in self.people)

    def slices(self) -> Iterator[tuple[str, SliceSpec]]:
        """(a text for the program or put, its slice), for all of them."""
        for person in self.people:
            for made in person.calls:
                if isinstance(made.call, p.Register):
                    for spec in made.call.ir.slices:
                        yield f"program {made.call.ir.name!r} of client {person.label!r}", spec
                elif isinstance(made.call, p.Put):
                    yield f"a put of client {person.label!r}", made.call.slice
                elif isinstance(made.call, p.View):
                    yield f"a view of client {person.label!r}", made.call.slice


def read(path: Path, *, policy: Callable[[], Policy] | None = None, partial: bool = False) -> Workload:
    """Read a log file. `policy`: makes the recorded policy, if that is not one known by name."""
    try:
        return workload_of(eventlogs.read(path, partial=partial), policy)
    except SeawayError as error:
        raise Impossible(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def workload_of(log: Log, policy: Callable[[], Policy] | None = None) -> Workload:
    trace = Trace()
    controller = eventlogs.machine_of(log.about, policy=policy, trace=trace)
    gathered: dict[int, _Gathered] = {}  # by connection
    order: list[_Gathered] = []
    compiling, seen, lost = Compiling(), PlacesSeen(), 0
    try:
        for entry, commands in zip(log.entries, replayed(log, controller), strict=False):
            event = entry.event
            compiling.see(event, commands, entry.now)
            seen.look(controller)
            if (
                isinstance(event, p.Disconnected)
                and event.peer < controller.cluster.hosts
                and controller.left()["runs"]
            ):
                lost += 1
            if not isinstance(event, p.MessageReceived) or event.peer < controller.cluster.hosts:
                continue
            if isinstance(event.message, p.Open):
                gathered[event.peer] = _Gathered(event.message, entry.now)
            elif event.peer in gathered:
                gathered[event.peer].hear(event.message, entry.now)
            client = controller.client_at(event.peer)  # one that starts again takes clients in when its hosts are there
            if client is not None and gathered[event.peer].number < 0:
                gathered[event.peer].take_in(client[0])
                order.append(gathered[event.peer])
    except Diverged as diverged:
        raise Impossible(
            f"the log does not replay: its event {diverged.index} leads to other commands here; `seaway replay` "
            f"shows the difference"
        ) from None
    people = _people(order, trace)
    if not any(person.runs for person in people):
        raise Impossible("the log has no runs: no client submitted anything while it was recorded")
    make = policy or eventlogs.policy_of(log.about)
    name = log.about.policy.rpartition(":")[2].lower()
    config = msgspec.structs.replace(controller.config, accounts=False)  # each client has a share of its own
    return Workload(people, controller.cluster, config, make, name, trace, compiling.mean, lost, seen.all())


class Compiling:
    """How long hosts compiled: from the controller's order until the last host had the code ready."""

    def __init__(self) -> None:
        self._ordered: dict[tuple[int, int], int] = {}  # (plan, code) -> when
        self._ready: dict[tuple[int, int], int] = {}

    def see(self, event: Any, commands: Sequence[Any], now: int) -> None:
        """Take an event of the controller and its commands."""
        if isinstance(event, p.MessageReceived) and isinstance(event.message, p.Reports):
            for report in event.message.reports:
                if isinstance(report, p.Compiled) and (report.plan, report.code) in self._ordered:
                    self._ready[report.plan, report.code] = now
        for command in commands:
            if isinstance(command, p.Send) and isinstance(command.message, p.Ordered):
                for step in command.message.steps:
                    if isinstance(step, p.CompileStep):
                        for code in step.codes:
                            self._ordered.setdefault((step.plan, code), now)

    @property
    def mean(self) -> int:
        """Mean nanoseconds a code; 0 if nothing was compiled."""
        took = [now - self._ordered[which] for which, now in self._ready.items()]
        mean = sum(took) // max(1, len(took))
        return mean if mean >= LEAST else 0


class _Gathered:
    def __init__(self, opening: p.Open, at: int) -> None:
        self.number, self.opening, self.at = -1, opening, at
        self.calls: list[tuple[int, Any]] = []

    def take_in(self, number: int) -> None:
        if self.opening.client or self.opening.held or self.opening.open_runs:
            raise Impossible(
                f"client {self.opening.name!r} had opened its session before this log begins, and what it held then is "
                f"not in it; take the log of a start in which all clients were new"
            )
        self.number = number

    def hear(self, message: Any, at: int) -> None:
        calls = message.calls if isinstance(message, p.Calls) else (message,)
        self.calls += [(at, call) for call in calls]


def _people(order: Sequence[_Gathered], trace: Trace) -> tuple[RecordedClient, ...]:
    ends = {(row["client"], row["call"]): row["ended"] for row in trace.runs.rows() if row["ended"] >= 0}
    fetched: dict[int, list[int]] = {}  # client -> when contents had been sent to it
    for row in trace.transfers.rows():
        if row["target"] < 0 <= row["ended"]:
            fetched.setdefault(row["client"], []).append(row["ended"])
    seen: dict[str, int] = {}
    people = []
    for one in order:
        name = one.opening.name
        seen[name] = seen.get(name, 0) + 1
        label = name if seen[name] == 1 else f"{name} ({seen[name]})"
        left = any(isinstance(call, p.CloseSession) for _, call in one.calls)
        calls = [(at, call) for at, call in one.calls if not isinstance(call, p.CloseSession)]
        _check_names(label, calls)
        mine = {call: ended for (client, call), ended in ends.items() if client == one.number}
        people.append(
            RecordedClient(
                name, label, one.number, one.opening.weight, one.opening.priority, one.at,
                tuple(_with_waits(calls, one.at, mine, sorted(fetched.get(one.number, [])))), left,
            )
        )  # fmt: skip
    return tuple(people)


def _with_waits(
    calls: Sequence[tuple[int, Any]], opened: int, ends: dict[int, int], fetched: Sequence[int]
) -> Iterator[RecordedCall]:
    """Calls with their waits. `ends`: ends of runs. `fetched`: times when contents had been sent. Both by the
    controller's clock."""
    pending: list[tuple[int, Any]] = []
    last = opened  # when it last submitted
    over, runs_made = sorted(ends.values()), 0
    for at, call in calls:
        if not isinstance(call, p.Submit):
            pending.append((at, call))
            continue
        asked, crowded = False, runs_made - bisect_right(over, last) >= CROWDED
        think = 0 if crowded else call.think
        for number, (when, other) in enumerate(pending):
            runs = () if isinstance(other, p.Get) else call.waited
            waited = tuple(run for run in runs if 0 <= ends.get(run, NOT_KNOWN) <= when)
            alike = (call.think or crowded) and waited == call.waited
            before = (think, len(pending) - number) if alike else None
            since, contents = _came(waited, when, ends, fetched if asked else (), last)
            yield RecordedCall(when, other, waited, when - since, contents, before)
            asked = asked or isinstance(other, p.Get)
        since, contents = _came(call.waited, at, ends, fetched if asked else (), last)
        yield RecordedCall(at, call, call.waited, at - since, contents, None, crowded)
        pending.clear()
        last, runs_made = at, runs_made + 1
    yield from (RecordedCall(at, call, (), at - last) for at, call in pending)


def _came(waited: Sequence[int], at: int, ends: dict[int, int], fetched: Sequence[int], last: int) -> tuple[int, bool]:
    """(when the last thing that a call waited for was there, whether that were contents).

    For a call that waited for nothing, the time of the previous `Submit`.
    """
    over = [ends[run] for run in waited if run in ends]
    if not over:
        return min(at, last), False
    contents = fetched[: bisect_right(fetched, at)][-1:]
    return min(at, max([*over, *contents])), bool(contents) and contents[0] > max(over)


def _check_names(label: str, calls: Sequence[tuple[int, Any]]) -> None:
    """Raise Impossible if a call names something that no earlier call of the log has made."""
    known: dict[tuple[str, int], None] = {}
    for _, call in calls:
        for what, name in _names(call):
            if (what, name) not in known:
                raise Impossible(
                    f"client {label!r} names {what} {name}, which no call in this log has made: the log lacks some of "
                    f"its calls (a lost connection?), so they cannot be run again"
                )
        known |= dict.fromkeys(_made(call))


def _names(call: Any) -> list[tuple[str, int]]:
    match call:
        case p.Submit():
            buffers = [("buffer", arg) for arg in ranges.each(call.args) if isinstance(arg, int)]
            return [("program", call.program), *buffers, *(("run", run) for run in call.waited)]
        case p.Unregister(program=program):
            return [("program", program)]
        case p.Get(buffer=buffer):
            return [("buffer", buffer)]
        case p.View(shards=shards):
            return [("buffer", source) for source, _ in shards]
        case p.Release(buffers=buffers):
            return [("buffer", buffer) for buffer in ranges.each(buffers)]
        case p.Cancel(run=run) | p.StopRun(run=run):
            return [("run", run)]
        case _:
            return []


def _made(call: Any) -> list[tuple[str, int]]:
    match call:
        case p.Register(program=program):
            return [("program", program)]
        case p.Submit(run=run, results=results):
            return [("run", run), *(("buffer", name) for name in ranges.each(results) if name)]
        case p.Put(buffer=buffer) | p.View(buffer=buffer):
            return [("buffer", buffer)]
        case _:
            return []


def anywhere(spec: SliceSpec) -> SliceSpec:
    """The slice without its island and kind, so that it can be placed anywhere."""
    return msgspec.structs.replace(spec, island="", kind="")
