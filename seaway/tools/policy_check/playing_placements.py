"""Plays a placement in one world: core's own controller, clients that hold slices for a time, and a clock that jumps.

The function that matters: `play_slices`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush
from typing import Any, cast

from msgspec.structs import replace

from core import protocol as p
from core.controller import Controller
from core.model import Cluster, Impossible, Program, SliceSpec, spans
from core.schedule.policy import NEVER, ClusterView, Placement, Policy, SliceUse

from .judge import Misdeed
from .placement_worlds import ComingSlice, PlacementWorld, S
from .playing import PlayedWorld

PASSED = 100  # slices that were asked for later and have started where one could be that waits
IDLE = 86_400 * S  # it is over when nothing but wake-ups of the policy's own has happened for so long
SHORT, OFTEN = 20 * S, 10  # slices thrash that are taken away after so little time, so often: twice `preempt_keep`
HASTY = 20  # wake-ups of the policy's own, each less than a second after the one before
CLIENTS, HOST = 4, 1000  # peers: clients from 1 on, hosts from here on
ACTS = ("start", "keep", "suspend", "move", "resize")


def play_slices(world: PlacementWorld, make: Callable[[], Policy], may_starve: bool) -> PlayedWorld:
    """Plays it twice: two policies that are made alike are to do alike."""
    one, other = (_PlayingSlices(world, cast(Placement, make()), may_starve) for _ in range(2))
    found = one.run()
    if found is None and (other.run() or one.log != other.log):
        same = [mine == its for mine, its in zip(one.log, other.log, strict=False)]
        del one.log[[*same, False].index(False) + 1 :]
        text = "two policies that were made alike saw the same, and did different things: they depend on something else"
        found = Misdeed("other answers", text)
    return PlayedWorld(found, one.log, one.judge.asked)


class PlacementJudge(Placement):
    """Stands between the controller and a placement, on both sides of the view."""

    def __init__(self, policy: Placement, fail: Callable[..., None], say: Callable[[str], None]) -> None:
        self.asked = self._now = 0
        self.hasty: Counter[str] = Counter()  # slices that were taken away, since anything happened last
        self._policy, self._fail, self._say = policy, fail, say
        self._actions: Any = None
        self._passed: Counter[int] = Counter()
        self._since: dict[str, int] = {}  # when it got its devices
        self._did: list[str] = []

    def decide(self, cluster: ClusterView) -> None:
        self.asked, self._now, self._actions, self._did = self.asked + 1, cluster.now, cluster._actions, []
        waits = ", ".join(f"slice {use.name}" for use in cluster.waiting) or "nothing"
        try:
            self._policy.decide(ClusterView(cast(Any, self), cluster.now))
        except Misdeed:
            raise
        except Exception as error:  # the policy is a user's code
            self._fail("raises", f"`decide` raised {type(error).__name__}: {error}", error)
        finally:
            self._say(f"asked: {waits} waits -> {', '.join(self._did) or 'nothing'}")

    def __getattr__(self, name: str) -> Any:
        """What the view asks of the controller."""
        return partial(self._act, name) if name in ACTS else getattr(self._actions, name)

    def _act(self, what: str, use: SliceUse, *how: Any) -> bool:
        name, waiting = f"slice {use.name}", self._actions.waiting()
        self._did.append(f"{what} {name}")
        if use.number not in [each.number for each in (*waiting, *self._actions.running())]:
            self._fail("gone", f"`{what}` of {name}, which neither waits nor has devices: it kept what it saw earlier")
        done = False
        try:
            done = getattr(self._actions, what)(use, *how)
        except Impossible as error:
            self._fail("no place", f"started {name} where it cannot be: {error}", error)
        self._did[-1] += (f" on {spans.text(use.where)}" if use.where else "") if done else " (not possible)"
        if done and what == "start":
            self._judge_passing(use, waiting)
        if done and what != "keep":
            since, self._since[name] = self._since.get(name, -SHORT), self._now
            self.hasty[name] += what != "start" and self._now - since < SHORT
        if self.hasty[name] >= OFTEN:
            often = f"{OFTEN} times within less than {SHORT // S} s, with nothing else in between"
            self._fail("thrashes", f"took the devices of {name} away {often}")
        return done

    def _judge_passing(self, use: SliceUse, waiting: list[SliceUse]) -> None:
        del self._passed[use.number]
        for each in waiting:
            if each.number < use.number and use.at and use.at.index in self._actions.suits(each):
                self._passed[each.number] += 1
            if self._passed[each.number] >= PASSED:
                what = f"{PASSED} that were asked for later have started where it could be (if meant: may_starve=True)"
                self._fail("starves", f"starved slice {each.name}: {what}")


class ResizingJudge(PlacementJudge):
    resizes = True


class _PlayingSlices:
    def __init__(self, world: PlacementWorld, policy: Placement, may_starve: bool) -> None:
        self.log: list[str] = []
        self.found: Misdeed | None = None
        self.now = self._heard = self._woken = self._hurried = self._count = 0
        self._may_starve = may_starve
        self.judge = (ResizingJudge if policy.resizes else PlacementJudge)(policy, self.fail, self.say)
        self._controller = Controller(Cluster(world.islands), lambda: self.judge)
        self._todo: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._slices: dict[int, tuple[ComingSlice, int, str]] = {}  # by number: what it still needs, its name now
        self._hear(*[p.MessageReceived(HOST + n, p.Join(n, 0)) for n in range(sum(i.hosts for i in world.islands))])
        self._hear(*[p.MessageReceived(1 + n, p.Open(str(n), 1 + n, n)) for n in range(CLIENTS)])
        for number, each in enumerate(world.coming, 1):
            self._at(each.at, self._asks, number, each)
        for host, at, back in world.losses:
            self._at(at, self._happens, f"host {host} is lost", p.Disconnected(HOST + host))
            self._at(back, self._happens, f"host {host} is back", p.MessageReceived(HOST + host, p.Join(host, back)))

    def run(self) -> Misdeed | None:
        try:
            while (self._todo or self._slices) and self._goes_on():
                pass
        except Misdeed as misdeed:
            self.found = misdeed
        return self.found

    def say(self, text: str) -> None:
        line = f"{self.now / S:9.1f} s  {text}"
        if self.log[-1:] != [line]:  # it is asked several times while a slice leaves its devices
            self.log.append(line)

    def fail(self, kind: str, text: str, cause: Exception | None = None) -> None:
        """The controller takes what is raised for the policy's own failure; `found` says what it was."""
        if kind != "starves" or not self._may_starve:
            self.found = self.found or Misdeed(kind, text)
            raise self.found from cause

    # --- time passes

    def _goes_on(self) -> bool:
        """To what comes next; False: nothing does."""
        ends = {number: self.now + left for number, (_, left, _) in self._slices.items() if self._has(number)}
        end, ending = min(((at, number) for number, at in ends.items()), default=(NEVER, 0))
        coming, woken = self._todo[0][0] if self._todo else NEVER, self._controller.next_wakeup()
        at = min(end, coming, NEVER if woken is None else woken)
        if at - self._heard > IDLE:
            self._judge_idle()
            return False
        for number in ends:
            each, left, name = self._slices[number]
            self._slices[number] = each, left - (at - self.now), name
        self.now = at
        if at in (end, coming):
            self._heard, self._hurried = at, 0
            self.judge.hasty.clear()
            what, about = heappop(self._todo)[2:] if at == coming else (self._releases, (ending,))
            what(*about)
        else:
            self._wakes()
        if self.found is not None:
            raise self.found
        return True

    def _wakes(self) -> None:
        asked, before, self._woken = self.judge.asked, self._woken, self.now
        self._hear(p.Wakeup())
        self._hurried += self.judge.asked > asked and self.now - before < S
        if self._hurried >= HASTY:
            self.fail("hurries", f"asked to be woken {HASTY} times within a second each: name a time that matters")

    def _judge_idle(self) -> None:
        """At the end: whether a slice waits, and nobody has anything that it could have."""
        resources = self._controller.resources
        taken = {place.island for binding in resources.bindings() for place in binding.places}
        for key in resources.queue:
            if taken.isdisjoint(resources.matching(key)) and resources.could_start(key, spans.EMPTY):
                self.fail("never starts", f"never started slice {key[1]}, though all that it could have is free")

    def _has(self, number: int) -> bool:
        """Whether this slice has devices, and can use them."""
        each, _, name = self._slices[number]
        binding = self._controller.resources.binding(1 + each.client, name)
        return binding is not None and binding.place is not None and not binding.held

    # --- what happens

    def _at(self, when: int, what: Callable[..., None], *about: Any) -> None:
        self._count += 1
        heappush(self._todo, (when, self._count, what, about))

    def _asks(self, number: int, each: ComingSlice) -> None:
        name, expected = str(number), (("", each.says), ("fast", each.says // 2))
        spec = SliceSpec(name, each.devices, each.mesh, each.kind, exclusive=each.exclusive,
                         expected=expected if each.says else ())  # fmt: skip
        self._slices[number] = each, each.lasts, name
        call: Any = p.Register(number, Program(name, (spec,), (), (), (), ()))
        if each.sizes and self.judge.resizes:
            call = p.AskElastic(number, name, spec, each.sizes)
        said = f"slice {name} of client {each.client} is asked for: {each}"
        self._happens(said, p.MessageReceived(1 + each.client, call))

    def _releases(self, number: int) -> None:
        each, *_ = self._slices.pop(number)
        call = p.MessageReceived(1 + each.client, p.ReleaseSlice(str(number)))
        self._happens(f"slice {number} is released", call)
        if each.again:
            self._asks(number + 100, replace(each, again=each.again - 1))

    def _happens(self, what: str, event: p.Event) -> None:
        self.say(what)
        self._hear(event)

    def _hear(self, *events: p.Event) -> None:
        work = [*events]
        while work:
            for effect in self._controller.handle(work.pop(0), self.now):
                if isinstance(effect, p.FormWorld):
                    work.append(p.WorldUp(effect.island, effect.epoch))
                elif isinstance(effect, p.Send):
                    work += self._answers(effect.peers[0], effect.message)

    def _answers(self, peer: int, message: Any) -> Iterator[p.Event]:
        if isinstance(message, p.Seat):
            yield p.MessageReceived(peer, p.Seated(message.host, message.epoch, message.tree, message.last))
        for note in message.notes if isinstance(message, p.ClientMessages) else (message,):
            if isinstance(note, p.Sized):  # its client moves there at once
                each, left, name = self._slices[note.request]
                self._slices[note.request] = each, left, note.slice.name
                if "@" in name:
                    yield p.MessageReceived(peer, p.ReleaseSlice(name))
            elif isinstance(note, p.Refused):  # it fits nowhere
                del self._slices[note.name]
