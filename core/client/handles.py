"""A client's buffers by name: what they are to it, and what to tell a user who names one that is gone."""

from __future__ import annotations

from collections.abc import Iterable

from ..model import Illegal, Program
from ..protocol import Call, Put, Release, Submit

# (state, what happened) -> next state. What was ready may be lost with its hosts; what is spoilt stays so.
HANDLE: dict[tuple[str, str], str] = {
    ("promised", "ready"): "ready",
    ("promised", "spoilt"): "spoilt",
    ("ready", "ready"): "ready",
    ("ready", "spoilt"): "spoilt",
    ("spoilt", "ready"): "spoilt",
    ("spoilt", "spoilt"): "spoilt",
}
REMEMBERED = (
    1024  # handles of which it is known why they are gone; of older ones it is only known that they are
)


class Handles:
    def __init__(self) -> None:
        self._states: dict[int, str] = {}
        self._gone: dict[int, str] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._states)

    def promise(self) -> int:
        self._last += 1
        self._states[self._last] = "promised"
        return self._last

    def was_named(self, buffer: int) -> bool:
        return 0 < buffer <= self._last

    def state(self, buffer: int) -> str:
        """ "promised", "ready", "spoilt"; "" for one that is gone."""
        return self._states.get(buffer, "")

    def check(self, buffer: int) -> None:
        if buffer in self._states:
            return
        if not self.was_named(buffer):
            raise Illegal(
                f"buffer {buffer} was never named by this client; use what `submit` or `put` returned"
            )
        why = self._gone.get(buffer, "was released or donated long ago; keep it until its last use")
        raise Illegal(f"buffer {buffer} {why}")

    def give_up(self, buffer: int, why: str) -> None:
        del self._states[buffer]
        self._gone[buffer] = why
        if len(self._gone) > REMEMBERED:
            del self._gone[next(iter(self._gone))]

    def ready(self, buffer: int, good: bool) -> bool:
        """Whether that is news. Of one that was released meanwhile it is not."""
        before = self._states.get(buffer)
        if before is None:
            return False
        self._states[buffer] = HANDLE[before, "ready" if good else "spoilt"]
        return self._states[buffer] != before

    def spoil_all(self) -> tuple[int, ...]:
        """Those that somebody may be waiting for."""
        waiting = tuple(buffer for buffer, state in self._states.items() if state == "promised")
        for buffer in waiting:
            self._states[buffer] = "spoilt"
        return waiting

    def before(self, calls: Iterable[Call], programs: dict[int, Program]) -> tuple[int, ...]:
        """What was held before these calls, which the controller has not heard yet."""
        held = dict.fromkeys(self._states)
        for call in reversed(list(calls)):
            match call:
                case Submit(args=args, results=results):
                    for result in results:
                        held.pop(result, None)
                    donated = [args[index] for index in programs[call.program].donate_args]
                    held.update(dict.fromkeys(arg for arg in donated if isinstance(arg, int)))
                case Put(buffer=buffer):
                    held.pop(buffer, None)
                case Release(buffers=buffers):
                    held.update(dict.fromkeys(buffers))
                case _:
                    pass
        return tuple(sorted(held))
