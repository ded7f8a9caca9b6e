"""A client whose runs may be submitted again when the cluster fails them, and whose gets are asked again.

    client.submit(program, args, now, retries=3)     # RunEnded comes once: for the run that succeeded, or the last

The user's names stay: a result is the same future, whoever makes it in the end. Under them the controller hears of
another run with other results each time (`retries.Aliases`). So the rules are:

- Until such a run has ended, its arguments are held, though the user lets go of them. What it was donated is gone;
  what was put with `again=True` can be put again, since whoever put it keeps the contents (until `Unneeded`).
- A run that has failed waits (`retries.pause`), and then goes in the order in which the user called: behind those
  that make what it reads. If an argument is lost or donated, the failure is final, and `RunEnded.lacks` names it.
- Later runs that were under way and read its results have failed with it. Those that have retries of their own are
  submitted again behind it; others have failed. A call made while it waits, that reads what it makes, is `Blocked`.
- A get fails only if its buffer is lost: one that a lost connection cut short is asked again.

Neighbours: `client` is the session itself, in which nothing is ever repeated; `clientside` tells what gets brought.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..model import Illegal, SliceSpec, Value
from ..protocol import (
    Blame,
    BuffersReady,
    CallRefused,
    Effect,
    GetComing,
    PutWanted,
    RunAgain,
    RunEnded,
    Send,
    Unblocked,
    Unneeded,
)
from .client import Client
from .client_limits import SESSION, Blocked, Limits, Submitted
from .handles import REMEMBERED
from .retries import GETS, Aliases, Asked, Held, infrastructure, pause


class Persistent(Client):
    def __init__(
        self, name: str, *, weight: int = 1, priority: int = 0, limits: Limits | None = None
    ) -> None:
        super().__init__(name, weight=weight, priority=priority, limits=limits)
        self._names, self._requested, self._ran = Aliases(), Aliases(), Aliases()  # buffers, gets, runs
        self._held: dict[int, Held] = {}
        self._again: dict[int, Held] = {}  # of these, what is to be submitted again
        self._makers: dict[int, Held] = {}  # result -> the held run that makes it
        self._holds: dict[int, int] = {}  # argument -> held runs that may need it again
        self._hidden: dict[int, str] = {}  # given up by the user, and held by runs -> why nobody may name it
        self._kept: dict[int, tuple[Value, SliceSpec]] = {}  # puts whose contents are kept
        self._made: dict[int, tuple[int, ...]] = {}  # run -> its results, as the controller knows them
        self._gets: dict[int, Asked] = {}
        self._asking: dict[int, Blame] = {}  # gets that are to be asked again, and why
        self._said: list[Effect] = []

    # --- calls --------------------------------------------------------------------------------------------

    def submit(
        self, program: int, args: tuple[int | bytes, ...], now: int, *, keep: tuple[bool, ...] = (),
        dispatch: str = "parallel", deadline: int = 0, retries: int = 0,
    ) -> Submitted | Blocked:  # fmt: skip
        """`retries`: how often it is submitted again when the cluster fails it."""
        reads = [arg for arg in args if isinstance(arg, int)]
        blocked = self._later(reads)
        if blocked is not None:
            return blocked
        if len(self._runs) + len(self._again) >= self.limits.max_runs:
            return self._block(f"{len(self._runs) + len(self._again)} runs have not ended")
        wired = self._wired(args)
        answer = super().submit(program, wired, now, keep=keep, dispatch=dispatch, deadline=deadline)
        if isinstance(answer, Blocked):
            return answer
        ir = self._programs[program]
        donated = [arg for arg in (args[index] for index in ir.donate_args) if isinstance(arg, int)]
        if retries:
            self._hold(
                Held(answer.run, program, ir, args, answer.results, dispatch, deadline, retries), donated
            )
        for name in donated:
            if name in self._holds:
                self._hidden[name] = (
                    f"was donated to run {answer.run} of {ir.name!r}; donate a copy to keep it"
                )
            else:
                self._forget(name)
        return answer

    def _hold(self, held: Held, donated: list[int]) -> None:
        self._held[held.run] = held
        for name in held.results:
            if name:
                self._makers[name] = held
        for name in held.reads():
            self._holds[name] = self._holds.get(name, 0) + 1

    def _enter(self, *args: Any, **more: Any) -> Submitted:
        answer = super()._enter(*args, **more)
        self._made[answer.run] = answer.results
        return answer

    def put(self, value: Value, where: SliceSpec, now: int, *, again: bool = False) -> int | Blocked:
        """`again`: its contents will be kept until `Unneeded`, and offered as often as `PutWanted` asks."""
        answer = super().put(value, where, now)
        if again and isinstance(answer, int):
            self._kept[answer] = (value, where)
        return answer

    def get(self, buffer: int, now: int) -> int | Blocked:
        blocked = self._later([buffer])
        if blocked is not None:
            return blocked
        answer = super().get(self._names.wire(buffer), now)
        if isinstance(answer, int):
            self._gets[answer] = Asked(buffer)
        return answer

    def release(self, buffers: tuple[int, ...], now: int) -> None:
        self._may_name(buffers)
        held = [name for name in buffers if name in self._holds]
        free = [name for name in buffers if name not in self._holds] if held else buffers
        super().release(tuple(map(self._names.wire, free)), now)
        for name in held:
            self._hidden[name] = "was released; keep it until its last use"
        for name in free:
            self._forget(name)

    def cancel(self, run: int, now: int) -> None:
        held = self._held.get(run)
        if held is not None:
            held.cancelled = True
            if held.waits:
                self._may_call()
                self._finish(held, Blame("cancelled", "cancelled by its client", held.ir.name), now)
                return
        super().cancel(self._ran.wire(run), now)

    def waited(self, run: int, now: int) -> None:
        if run in self._held:
            raise Illegal(f"run {run} has not ended; say that it was waited for after its RunEnded")
        super().waited(self._ran.wire(run), now)

    def _later(self, reads: list[int]) -> Blocked | None:
        """What these are is not known yet: whoever makes them waits for its next try."""
        self._may_name(reads)
        if self._again:
            for name in reads:
                maker = self._makers.get(name)
                if maker is not None and maker.waits:
                    return self._block(
                        f"run {maker.run} of {maker.ir.name!r} is submitted again, and makes what this call reads"
                    )
        return None

    def _may_name(self, names: list[int] | tuple[int, ...]) -> None:
        for name in names if self._hidden else ():
            if name in self._hidden:
                raise Illegal(f"buffer {name} {self._hidden[name]}")

    def _wired(self, args: tuple[int | bytes, ...]) -> tuple[int | bytes, ...]:
        if not self._names:
            return args
        return tuple([self._names.wire(arg) if isinstance(arg, int) else arg for arg in args])

    # --- the machine --------------------------------------------------------------------------------------

    def handle(self, event: Effect, now: int) -> list[Effect]:
        for effect in super().handle(event, now):
            if type(effect) is Send:
                self._said.append(effect)
            else:
                self._hear(effect, now)
        if self._again or self._asking:
            self._go(now)
        said, self._said = self._said, []
        said += self._out
        self._out = []
        return said

    def next_wakeup(self) -> int | None:
        soonest = super().next_wakeup()
        if self._again and self.state == "open":
            for held in self._again.values():
                if not held.stuck and (soonest is None or held.due < soonest):
                    soonest = held.due
        return soonest

    def _hear(self, effect: Effect, now: int) -> None:
        """What the session has to say, in the user's names."""
        match effect:
            case RunEnded(run=run, blame=blame):
                self._ended_once(run, blame, now)
            case BuffersReady(buffers=buffers, blame=blame):
                names = tuple(map(self._names.user, buffers))
                if blame is not None and infrastructure(blame):  # of these their run's end will tell
                    names = tuple([name for name in names if name not in self._makers])
                if names:
                    self._said.append(BuffersReady(names, blame))
            case PutWanted(buffer=buffer):
                self._said.append(msgspec.structs.replace(effect, buffer=self._names.user(buffer)))
            case GetComing(request=request):
                self._said.append(msgspec.structs.replace(effect, request=self._requested.user(request)))
            case CallRefused(what="get", name=request, blame=blame):
                request = self._requested.user(request)
                if not self.landed(request, blame):
                    self._said.append(CallRefused("get", request, blame))
            case CallRefused(what="sending", name=request):
                self._said.append(msgspec.structs.replace(effect, name=self._requested.user(request)))
            case CallRefused(what="put", name=buffer):
                self._said.append(msgspec.structs.replace(effect, name=self._names.user(buffer)))
            case _:
                self._said.append(effect)

    def _ended_once(self, wire: int, blame: Blame | None, now: int) -> None:
        """A run has ended, as the controller has it."""
        for name in self._made.pop(wire, ()):
            if blame is not None and self._handles.state(name) == "promised":
                self._handles.ready(name, False)
        held = self._held.get(self._ran.user(wire))
        if held is None:
            self._said.append(RunEnded(wire, blame))
        elif blame is None or not held.goes_on(blame) or (self.state, "call") not in SESSION:
            self._finish(held, blame, now)
        elif lacks := self._lacks(held):
            self._finish(held, blame, now, lacks)
        else:
            held.tries += 1
            held.due, held.blame, held.stuck = now + pause(held.tries), blame, False
            self._again[held.run] = held
            self._said.append(RunAgain(held.run, blame, held.tries, held.due))

    def _finish(
        self, held: Held, blame: Blame | None, now: int, lacks: tuple[tuple[int, str], ...] = ()
    ) -> None:
        """Once and for all."""
        runs = held.tries if held.waits else held.tries + 1
        del self._held[held.run]
        self._again.pop(held.run, None)
        held.due = -1
        results = [name for name in held.results if name]
        for name in results:
            self._makers.pop(name, None)
        if blame is not None and runs > 1 and infrastructure(blame) and not lacks:
            blame = msgspec.structs.replace(blame, cause=f"{blame.cause}; it was run {runs} times")
        self._said.append(RunEnded(held.run, blame, lacks))
        if blame is not None:
            spoilt = [name for name in results if self._handles.state(self._names.wire(name)) != "ready"]
            if spoilt:
                self._said.append(BuffersReady(tuple(spoilt), blame))
        self._ran.keep_last(REMEMBERED)
        for name in held.reads():
            self._let_go(name, now)
        self._room()

    # --- again --------------------------------------------------------------------------------------------

    def _go(self, now: int) -> None:
        """Whatever may be tried again now is; in the order in which the user called."""
        if (self.state, "call") not in SESSION:
            blame = Blame("client-lost", "the session was closed")
            for number in sorted(self._again):
                self._finish(self._again[number], self._again[number].blame or blame, now)
            for request in list(self._asking):
                self._refuse(request)
            return
        if self.state != "open":
            return
        for number in sorted(self._again):
            held = self._again[number]
            if held.due > now:
                continue
            lacks = self._lacks(held)
            if lacks:
                assert held.blame is not None
                self._finish(held, held.blame, now, lacks)
            else:
                held.stuck = not self._may_go(held) or not self._submit_again(held, now)
        for request in list(self._asking):
            self._ask_again(request, now)

    def _lacks(self, held: Held) -> tuple[tuple[int, str], ...]:
        """Arguments that nobody has any more, or will make."""
        found = []
        for name in dict.fromkeys(held.reads()):
            state = self._handles.state(self._names.wire(name))
            if state in ("", "spoilt") and name not in self._makers and name not in self._kept:
                found.append((name, "lost" if state else "donated"))
        return tuple(found)

    def _may_go(self, held: Held) -> bool:
        """Those that make what it reads have gone, and there is room for its puts."""
        reads = dict.fromkeys(held.reads())
        makers = [self._makers[name] for name in reads if name in self._makers]
        puts = [name for name in reads if name in self._kept and not self._there(name)]
        return (
            not any(maker.waits for maker in makers)
            and len(self._requests) + len(puts) <= self.limits.max_requests
        )

    def _submit_again(self, held: Held, now: int) -> bool:
        program = held.program
        if program not in self._programs:  # it was unregistered meanwhile
            if len(self._programs) >= self.limits.max_programs:
                return False
            answer = super().register(held.ir, now)
            if isinstance(answer, Blocked):
                return False
            program = answer
        for name in held.reads():
            self._put_again(name, now)
        old = [self._names.wire(name) for name in held.results if name]
        super().release(tuple([name for name in old if self._handles.state(name)]), now)
        wanted = tuple([bool(name) for name in held.results])
        made = self._enter(program, self._wired(held.args), wanted, held.dispatch, held.deadline, now)
        for name, wire in zip(held.results, made.results, strict=True):
            if name:
                self._names.move(name, wire)
        self._ran.move(held.run, made.run)
        if program != held.program:
            super().unregister(program, now)
        del self._again[held.run]
        held.due = -1
        self._room()
        return True

    def _put_again(self, name: int, now: int) -> None:
        """If it is gone, and can be."""
        wire = self._names.wire(name)
        if name not in self._kept or self._there(name):
            return
        if self._handles.state(wire):
            super().release((wire,), now)
        answer = super().put(*self._kept[name], now)
        assert isinstance(answer, int), "there was room for it"
        self._names.move(name, answer)

    def landed(self, request: int, blame: Blame | None) -> bool:
        asked = self._gets.get(request)
        if asked is None:
            return False
        if (
            blame is not None
            and infrastructure(blame)
            and asked.tries < GETS
            and (self.state, "call") in SESSION
            and (asked.buffer in self._makers or self._there(asked.buffer))
        ):
            asked.tries += 1
            self._asking[request] = blame
            return True
        del self._gets[request]
        self._requested.drop(request)
        return False

    def _there(self, name: int) -> bool:
        return self._handles.state(self._names.wire(name)) in ("promised", "ready")

    def _ask_again(self, request: int, now: int) -> None:
        name = self._gets[request].buffer
        if name in self._makers:
            return  # when that has ended
        if not self._there(name):
            self._refuse(request)
        elif len(self._requests) < self.limits.max_requests:
            answer = super().get(self._names.wire(name), now)
            assert isinstance(answer, int), "there was room for it"
            self._requested.move(request, answer)
            del self._asking[request]

    def _refuse(self, request: int) -> None:
        del self._gets[request]
        self._requested.drop(request)
        self._said.append(CallRefused("get", request, self._asking.pop(request)))

    # --- giving back --------------------------------------------------------------------------------------

    def _let_go(self, name: int, now: int) -> None:
        """A held run does not need this argument any more."""
        self._holds[name] -= 1
        if self._holds[name]:
            return
        del self._holds[name]
        if name not in self._hidden:
            return
        del self._hidden[name]
        wire = self._names.wire(name)
        if self._handles.state(wire) and (self.state, "call") in SESSION:
            super().release((wire,), now)
        self._forget(name)

    def _forget(self, name: int) -> None:
        """Nobody will name it again."""
        maker = self._makers.pop(name, None)
        if maker is not None:
            maker.unwanted(name)
        self._names.drop(name)
        if self._kept.pop(name, None) is not None:
            self._said.append(Unneeded((name,)))

    def _room(self) -> None:
        if self._blocked:
            self._blocked = False
            self._said.append(Unblocked())
