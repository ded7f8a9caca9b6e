"""Compares a round of faults with the promises and the bounds. Pure: it is told what happened, and says what should not
have.

The bounds follow from the lease (`Bounds`). A fault is known after a lease at the latest. Three seconds later, each
call that the fault ends has ended, with an error that names the cause. Five seconds later, the islands run again. A
process that is restarted, or was stopped, has the time in addition that it took to start without faults.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

import msgspec

from .inject import Injected
from .journal import Call
from .processes import ProcessEnd, Usage
from .schedule import RESTARTS, STATE

# Worst first: the table counts a round as its worst outcome.
OUTCOMES = ("wrong", "hang", "died", "spread", "leak", "unnamed", "needless", "late", "error", "ok")
FAILED = OUTCOMES[:-2]
CODES = {
    "refused", "no-memory", "cancelled", "timeout", "host-lost", "host-left", "restart", "world", "client-lost", "lost",
    "code", "checkpoint", "unsupported", "user",
}  # fmt: skip
LOSSES = {"host-lost", "host-left", "restart", "world", "client-lost", "lost"}
NAMES = re.compile(r" is lost: |program '")  # an array, or a program
SESSION = {"Unreachable", "SessionClosed", "NotReady"}  # our errors that name the cause without a code
INSIDE = re.compile(r"Gloo|Traceback|JaxRuntimeError|XlaRuntimeError|coordination_service|Connection closed by peer")
SLACK = Usage(threads=24, fds=24, children=0, ports=0, rss=400)  # how much more a process may hold
# ... and while gangs are stuck in worlds that are over: until their collectives time out, an agent leaves up to so many
# worlds behind, each with its threads, a port and some connections (`backend.pjrt.world.LEFT`).
WORLDS = 4
STUCK = Usage(threads=24 + 140 * WORLDS, fds=24 + 16 * WORLDS, children=0, ports=2 * WORLDS, rss=400 + 150 * WORLDS)
# Faults under which the supervisor may find that a process has ended, and how: by itself, with a named error (0), or
# killed by the kernel, for its memory.
ENDS = {"address": 0, "files": 0, "drain": 0, "memory": -9} | dict.fromkeys(STATE, 0)
REFUSAL = re.compile(r"^seaway (?:agent|controller)\b.*: ", re.MULTILINE)
LOOSE = (
    "stop",
    "pulse",
    "suspend",
    "move",
    "drain",
    "hold",
    "up",
    "down",
    "cut",
    "unplug",
    "loss",
    "rate",
    "delay",
    "memory",
)
HARMLESS = ("stop", "pulse", "suspend", "move", "hold", "up", "down", "delay", "rate", "cut", "unplug")
ODD = 3.0  # times the bounds: a call that has not ended then counts as hung


class Bounds(msgspec.Struct, frozen=True):
    """Bounds in seconds, for a cluster with this lease whose processes take `start` to begin. `slack` multiplies
    them."""

    lease: float
    start: float
    slack: float = 1.0
    error: float = 3.0  # after detection
    stand: float = 5.0
    drain: float = 20.0  # seconds for a process that is told to end

    def detection(self, injected: Injected, now: float) -> float:
        """Seconds from the fault's beginning until it is known, or over, whichever is later."""
        fault = injected.fault
        known = self.lease + (self.drain if fault.kind == "terminate" else 0.0)
        over = (injected.over or now) - injected.begun
        if fault.kind in RESTARTS and fault.role not in ("coordination", "checker"):
            over += self.start
        if fault.kind in LOOSE and fault.lasts > self.lease / 2:
            over += self.start  # a process that was given up begins anew
        return max(known, over)

    def error_by(self, all_of: Sequence[Injected], now: float) -> float:
        return max(each.begun + (self.detection(each, now) + self.error) * self.slack for each in all_of)

    def stand_by(self, all_of: Sequence[Injected], now: float) -> float:
        return max(each.begun + (self.detection(each, now) + self.stand) * self.slack for each in all_of)

    def hang_by(self, all_of: Sequence[Injected], now: float) -> float:
        latest = max(each.over or now for each in all_of)
        return latest + ODD * (self.stand_by(all_of, now) - min(each.begun for each in all_of)) + 10.0


class RoundSeen(msgspec.Struct, kw_only=True):
    """What was seen of one round."""

    injected: list[Injected]
    calls: list[Call]  # calls that were under way at its beginning, or began later
    deaths: list[ProcessEnd]
    stood: float | None = None  # when `status` first said so and kept saying so; None: never
    resumed: float | None = None  # when each client had had a good call that began after all faults were over
    waiting: str = ""  # what was missing when waiting was given up
    quiet: str = ""  # what `status` still listed when all clients held nothing
    before: Mapping[str, Usage] = {}
    after: Mapping[str, Usage] = {}
    ended: float = 0.0  # when the round was given up
    islands: Mapping[str, tuple[int, ...]] = {}  # islands that clients call
    touched: frozenset[int] = frozenset()  # islands on which the faults may be noticed
    gone: frozenset[int] = frozenset()  # processes of clients that faults have ended


class Verdict(msgspec.Struct, kw_only=True):
    outcome: str
    findings: list[str]
    codes: dict[str, int]
    to_error: float | None = None  # seconds
    to_resume: float | None = None

    @property
    def failed(self) -> bool:
        return self.outcome in FAILED


def judge(seen: RoundSeen, bounds: Bounds, forgiven: Container[str] = ()) -> Verdict:
    """Judge a round. `forgiven`: outcomes that are listed, but do not count for the round."""
    begun = min(each.begun for each in seen.injected)
    errors = [call for call in seen.calls if call.end == "error"]
    found: list[tuple[str, str]] = []
    found += [("wrong", f"{_of(call)}: wrong numbers") for call in seen.calls if call.end == "wrong"]
    found += _hangs(seen, begun)
    found += [
        ("died", f"{death.name} (pid {death.pid}) ended by itself with {death.code}"
         if not death.meant else f"{death.name} (pid {death.pid}), told to end, ended with {death.code}")
        for death in seen.deaths if death.wrong and not _foreseen(death, seen)
    ]  # fmt: skip
    found += [
        ("unnamed", f"{death.name} (pid {death.pid}) ended without a named error: {death.said[-300:]!r}")
        for death in seen.deaths
        if _foreseen(death, seen) and death.code > 0 and not _refusal(death.said)
    ]
    found += [
        ("spread", f"{_of(call)} is not on the island: {_error(call)}") for call in errors if _elsewhere(call, seen)
    ]
    found += [("leak", words) for words in leaks(seen.before, seen.after, STUCK)]
    found += [("leak", seen.quiet)] if seen.quiet else []
    found += [
        ("unnamed", f"{_of(call)}: {words}")
        for call in errors
        if (words := unnamed(call) or _another_cause(call, seen))
    ]
    if errors and _harmless(seen, bounds):
        found.append(("needless", f"{_of(errors[0])}: {_error(errors[0])}, in less than half a lease"))
    found += _late(seen, bounds, begun)
    codes: dict[str, int] = {}
    for call in errors:
        codes[call.code or call.kind] = codes.get(call.code or call.kind, 0) + 1
    worst = min(
        (name for name, _ in found if name not in forgiven), key=OUTCOMES.index, default="error" if errors else "ok"
    )
    ends = [call.ended - begun for call in errors if call.ended is not None]
    return Verdict(
        outcome=worst, findings=[f"{name}: {words}" for name, words in found], codes=codes,
        to_error=min(ends) if ends else None,
        to_resume=seen.resumed - begun if seen.resumed is not None else None,
    )  # fmt: skip


def unnamed(call: Call) -> str:
    """What is wrong with the text of this error; "" if it names its cause."""
    told = f"{call.kind} [{call.code}] {call.text[:300]}"
    if not call.ours:
        return f"no error of Seaway's: {told}"
    if call.code and call.code not in CODES:
        return f"code {call.code!r} is no user's: {told}"
    if not call.code and call.kind not in SESSION:
        return f"an error without a code: {told}"
    if call.code in LOSSES and call.kind == "RunError" and not NAMES.search(call.text):
        return f"it does not name what is lost: {told}"
    return f"it does not name the cause: {told}" if INSIDE.search(call.text) else ""


def _foreseen(death: ProcessEnd, seen: RoundSeen) -> bool:
    """Whether a process may end so under a fault of this round."""
    for each in seen.injected:
        code = ENDS.get(each.fault.kind)
        if code is None or each.fault.target != death.name or death.at < each.begun:
            continue
        if death.code == code or (code == 0 and death.code > 0):
            return True
    return False


def _refusal(said: str) -> bool:
    return REFUSAL.search(said) is not None and "Traceback" not in said


def _another_cause(call: Call, seen: RoundSeen) -> str:
    """Whether an error names a cause that has not happened."""
    anew = any(each.fault.role == "controller" and each.fault.kind in RESTARTS for each in seen.injected)
    anew |= any(death.name == "controller" for death in seen.deaths)
    if call.code == "restart" and not anew:
        return f"no controller was started anew: {_error(call)}"
    return ""


def leaks(before: Mapping[str, Usage], after: Mapping[str, Usage], slack: Usage = SLACK) -> list[str]:
    """What processes hold beyond what they did before."""
    found = []
    for name, was in before.items():
        now = after.get(name, was)
        for what in Usage.__struct_fields__:
            old, new, more = getattr(was, what), getattr(now, what), getattr(slack, what)
            if new > old + more:
                found.append(f"{name} has {new} {what}, and had {old}")
    return found


def _hangs(seen: RoundSeen, begun: float) -> list[tuple[str, str]]:
    if seen.resumed is not None and seen.stood is not None:
        return []
    open_calls = [
        f"{_of(call)} for {seen.ended - call.begun:.1f} s" for call in seen.calls
        if call.ended is None and call.pid not in seen.gone
    ]  # fmt: skip
    failing: dict[str, int] = {}
    for call in seen.calls:
        if call.end == "error":
            words = f"{call.client}: {_error(call)}"
            failing[words] = failing.get(words, 0) + 1
    most = sorted(failing.items(), key=lambda item: -item[1])[:4]
    told = "; ".join([*open_calls, *(f"{count} x {words}" for words, count in most)])
    return [
        ("hang", f"not over {seen.ended - begun:.1f} s after it began: {seen.waiting}. Calls: {told or 'none open'}")
    ]


def _elsewhere(call: Call, seen: RoundSeen) -> bool:
    """Whether no fault of this round touches the client's islands, nor the client or its door itself."""
    ends = {end for each in seen.injected for end in (each.fault.target, *each.fault.link[:2])}
    itself = not ends.isdisjoint((f"client-{call.client}", f"door-{call.client}"))
    return bool(seen.touched) and not (itself or seen.touched.intersection(seen.islands.get(call.client, ())))


def _harmless(seen: RoundSeen, bounds: Bounds) -> bool:
    """Whether nobody is to notice the fault: the process was stopped for far less than a lease, or a clock was moved.
    Where packets are lost, TCP repeats them only after as long again."""
    (each, *more) = seen.injected
    fault = each.fault
    if more or fault.kind in ("clock", "move", "drain", "grow"):
        return not more
    lost = fault.role == "link" or fault.kind == "unplug"
    return fault.kind in HARMLESS and fault.lasts < bounds.lease / (4 if lost else 2)


def _late(seen: RoundSeen, bounds: Bounds, begun: float) -> list[tuple[str, str]]:
    error_by = bounds.error_by(seen.injected, seen.ended)
    stand_by = bounds.stand_by(seen.injected, seen.ended)
    found = [
        ("late", f"{_of(call)}: told {call.ended - begun:.1f} s after, bound {error_by - begun:.1f} s")
        for call in seen.calls
        if call.begun <= begun and call.ended is not None and call.end == "error" and call.ended > error_by
    ]
    if seen.stood is not None and seen.stood > stand_by:
        found.append(("late", f"all stands {seen.stood - begun:.1f} s after, bound {stand_by - begun:.1f} s"))
    return found


def _of(call: Call) -> str:
    return f"{call.what!r} of {call.client}"


def _error(call: Call) -> str:
    return f"{call.kind} [{call.code}] {call.text[:160]}"
