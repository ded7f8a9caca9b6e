"""The judge stands between the scheduler and a policy: it passes each question on, and judges the answer.

A second policy, made in the same way, is asked the same questions. Its answers must be the same, or else the policy
depends on something that it was not shown. What a policy gets is compared before and after, and so is the policy
itself around `pick`, which must change nothing. Random generators are no part of that: they may be drawn from.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from core.schedule.policy import Policy, Ready, Reserve, Ticket

MakePolicy = Callable[[], Policy]
SHOWN = tuple(name for name in Ticket.__struct_fields__ if name not in ("owner", "queue", "state"))
DEEP = 6  # levels of a policy's own objects that are compared
EVENTS = ("entered", "finished", "joined", "left", "gone", "merged", "split", "ended")


class Misdeed(Exception):
    """What a policy did wrong. `kind` is the same for the same mistake."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


def gang_name(ticket: Ticket) -> str:
    return f"gang {ticket.number}"


class PolicyJudge(Policy):
    """A policy for the scheduler, which asks another one. `found` is the first thing that this one did wrong."""

    def __init__(self, make: MakePolicy, say: Callable[[str], None]) -> None:
        self.policy, self.twin = make(), make()
        self.found: Misdeed | None = None
        self.asked = 0
        self._say = say

    def pick(self, ready: Ready, now: int) -> Ticket | Reserve:
        self.asked += 1
        own, before = _state(self.policy), _contents(ready)
        heads = ", ".join(map(gang_name, ready.heads()))
        try:
            answer = self._call("pick", ready, now)
        except Misdeed:
            self._say(f"asked: {heads} may enter -> raises")
            raise
        self._say(f"asked: {heads} may enter -> {_answer_text(answer)}")
        for gang, fields in zip(before[0], _contents(ready)[0], strict=False):
            if gang != fields:
                names = [name for name, one, two in zip(SHOWN, gang, fields, strict=True) if one != two]
                self._fail("changes gangs", f"`pick` changed {', '.join(names)} of gang {gang[SHOWN.index('number')]}")
        if _contents(ready) != before:
            self._fail("changes queues", "`pick` changed the queues of `ready`")
        other = self._of_twin("pick", ready, now)
        if answer is not other and _answer_text(answer) != _answer_text(other):
            self._fail(
                "other answers",
                f"two policies that were made alike were asked the same, and one answered {_answer_text(answer)}, the "
                f"other {_answer_text(other)}: it depends on something that it was not shown (a clock, a set's order, "
                f"random numbers without a seed)",
            )
        if isinstance(answer, Ticket):
            if answer not in ready:
                self._fail("not ready", f"picked {gang_name(answer)}, which is not ready ({heads} may enter)")
        elif isinstance(answer, Reserve):
            self._judge_reserve(answer, now)
        else:
            self._fail("no gang", f"picked {answer!r}: that is neither a gang of `ready` nor a `Reserve`")
        if _state(self.policy) != own:
            self._fail(
                "changes itself",
                "`pick` changed the policy itself. It is also asked what it would take; keep accounts in `entered`",
            )
        chosen: Ticket | Reserve = answer
        return chosen

    def _judge_reserve(self, answer: Reserve, now: int) -> None:
        gang: object = answer.gang
        until: object = answer.until
        if not self.reserves:
            self._fail("may not reserve", "answered Reserve, which takes `reserves = True` in its class")
        if gang is not None and (not isinstance(gang, Ticket) or gang.queue is None):
            self._fail("reserves for nobody", "reserved devices for what does not wait")
        if until is not None and (not isinstance(until, int) or until <= now):
            self._fail("reserves in the past", f"reserved devices until {answer.until!r}, and it is {now} already")

    def rank(self, ticket: Ticket) -> int:
        before = _fields(ticket)
        rank = self._call("rank", ticket)
        if type(rank) is not int:
            self._fail("no rank", f"ranked {gang_name(ticket)} {rank!r}, which is not a whole number")
        other = self._of_twin("rank", ticket)
        if rank != other:
            self._fail(
                "other answers", f"two policies that were made alike ranked {gang_name(ticket)} {rank} and {other}"
            )
        if _fields(ticket) != before:
            self._fail("changes gangs", f"`rank` changed {gang_name(ticket)}")
        return int(rank)

    def hear(self, event: str, *about: Any) -> None:
        """Something has happened that the policy may learn from."""
        before = [_fields(each) for each in about if isinstance(each, Ticket)]
        self._call(event, *about)
        self._of_twin(event, *about)
        if [_fields(each) for each in about if isinstance(each, Ticket)] != before:
            self._fail("changes gangs", f"`{event}` changed the gang that it was told of")

    def _call(self, method: str, *about: Any) -> Any:
        try:
            return getattr(self.policy, method)(*about)
        except Exception as error:  # the policy is a user's code
            self._fail("raises", f"`{method}` raised {type(error).__name__}: {error}", error)

    def _of_twin(self, method: str, *about: Any) -> Any:
        try:
            return getattr(self.twin, method)(*about)
        except Exception as error:  # the first one did not raise
            self._fail(
                "other answers",
                f"of two policies that were made alike, one raised {type(error).__name__}: {error}, the other did not",
                error,
            )

    def _fail(self, kind: str, text: str, cause: Exception | None = None) -> None:
        """The scheduler takes whatever is raised for the policy's own failure; `found` says what it was."""
        if self.found is None:
            self.found = Misdeed(kind, text)
            self.found.__cause__ = cause
        raise self.found


def _hears(event: str) -> Callable[..., None]:
    return lambda self, *about: self.hear(event, *about)


for _event in EVENTS:
    setattr(PolicyJudge, _event, _hears(_event))


class ReservingJudge(PolicyJudge):
    reserves = True


def judge_of(make: MakePolicy, say: Callable[[str], None]) -> PolicyJudge:
    return (ReservingJudge if make().reserves else PolicyJudge)(make, say)


def _answer_text(answer: object) -> str:
    if isinstance(answer, Ticket):
        return gang_name(answer)
    if isinstance(answer, Reserve):
        whom = f" for {gang_name(answer.gang)}" if isinstance(answer.gang, Ticket) else ""
        when = f" until {answer.until / 1e6:g} ms" if isinstance(answer.until, int) else ""
        return f"nothing now, reserved{whom}{when}"
    return repr(answer)


def _fields(ticket: Ticket) -> tuple[Any, ...]:
    return tuple(getattr(ticket, name) for name in SHOWN)


def _contents(ready: Ready) -> tuple[list[tuple[Any, ...]], list[list[int]]]:
    """What a policy is shown, to be compared: the fields of all gangs, and how they are queued."""
    tickets = list(ready)
    return [_fields(each) for each in tickets], [[gang.number for gang in each] for each in ready.queues()]


def _state(thing: object, deep: int = DEEP) -> object:
    """What an object holds, to be compared. Random generators are left out."""
    if isinstance(thing, random.Random) or deep < 0:
        return None
    if isinstance(thing, Ticket):
        return gang_name(thing)
    if isinstance(thing, dict):
        return [(_state(key, deep - 1), _state(each, deep - 1)) for key, each in thing.items()]
    if isinstance(thing, list | tuple | deque):
        return [_state(each, deep - 1) for each in thing]
    if isinstance(thing, set | frozenset):
        return sorted(repr(_state(each, deep - 1)) for each in thing)
    if isinstance(thing, msgspec.Struct):
        return [_state(getattr(thing, name), deep - 1) for name in thing.__struct_fields__]
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    own = {**{name: getattr(thing, name, None) for name in slots}, **getattr(thing, "__dict__", {})}
    if own and not callable(thing):
        return [(name, _state(each, deep - 1)) for name, each in own.items()]
    return thing if isinstance(thing, int | float | str | bytes | bool | None) else repr(thing)
