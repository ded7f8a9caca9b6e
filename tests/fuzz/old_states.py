"""The operator of a case: starts the controller with an older copy of its state, and later does what it says.

Neighbours: `play`, which lets this happen, and demands in the end that a new client is served.
"""

from __future__ import annotations

from collections.abc import Callable

from core.model.program import SliceSpec, Value
from tests.world.world import World

from .case import MS, US, AskElastic, Case, OldState
from .judging import Failed
from .waiting import who_waits


class Operator:
    def __init__(self, world: World) -> None:
        self._world = world
        self._remedy: tuple[int, ...] | None = None  # the state with which to start the controller again
        self._over = False  # whether all faults have ended
        self.acted = False

    def start_older(self, action: OldState) -> None:
        """All hosts know better: others would be served, and none begins anew meanwhile."""
        world = self._world
        older = world.past[: max(1, len(world.past) - action.behind)]
        if self._over or self._remedy is not None or older == world.past:
            return
        if not all(host.machine.start == world.past[-1] for host in world.hosts if host.alive):
            world.soon(MS, self.start_older, action)
            return
        self.acted = True
        remedy = self._remedy = () if action.forget else world.past
        world.restart_controller(older, late_hosts=True)
        if action.mend:
            world.soon(action.mend, self._act, remedy)

    def end(self) -> None:
        """All faults end."""
        self._over = True
        self._act(self._remedy)

    def _act(self, remedy: tuple[int, ...] | None) -> None:
        """With a state that forgets, agents are refused, and so begin anew."""
        if remedy is None or remedy is not self._remedy:
            return
        self._remedy, world = None, self._world
        world.restart_controller(remedy)
        for host in world.hosts if not remedy else ():
            if host.alive:
                world.soon(1 + host.host * US, world.return_host, host.host)

    def judge(self, case: Case, goes_on: Callable[[Callable[[], bool]], bool]) -> None:
        """A new client is served, if there is a device left for it. `goes_on`: while this is true, in bounded time."""
        slices = [spec for program in case.programs for spec in program.slices]
        slices += [action.like for action in case.actions if isinstance(action, AskElastic)]
        if not self.acted or any(spec.exclusive for spec in slices):
            return
        script = self._world.client("new")
        fetch = script.get(script.put(Value((1,), "float32"), SliceSpec("new", 1)))
        if not goes_on(lambda: not fetch.over) or not fetch.right:
            raise Failed("not served", f"{fetch.blame}\n  {who_waits(self._world, [script], 0)}")
        script.close()
