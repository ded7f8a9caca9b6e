"""One client of a session. User calls become calls of core's client; core's replies update runs, buffers and fetches.

Large arguments are put first; small ones travel in the call. Buffers whose arrays are no longer referenced are released
in groups: with the next call, or when a wait lasts, so that releasing them does not double the messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from core import protocol as p
from core.client import Blocked, Client, Limits
from core.model import Range, Value, ranges

from ..errors import NotNow, SessionClosed
from ..graph import Given, Graph, single
from ..specs import ElasticSlice, Slice, avals
from . import ambient
from .arguments import BoundProgram, ElasticState, PlacedContents, SliceNames, arguments_of
from .array_groups import ArrayGroup, ClientBuffer, DescribedArray, Fetch, HeldNames
from .arrays import Array, Run
from .dropped_arrays import DroppedArrays, WaitedRuns
from .earlier_calls import EarlierCalls, RetryLog
from .port import Port

if TYPE_CHECKING:
    from ..graph import Signature
    from .session import Session

PROGRAMS = Limits().max_programs  # programs registered at once; the oldest is unregistered to make room
TOGETHER = 1 << 20  # bytes that are put by one call, or one array
PAST = {"move": "moved", "suspend": "suspended", "resume": "resumed"}
POLL = 1_000  # nanoseconds of session time that one check for readiness takes

log = logging.getLogger("seaway")


class Caller:
    """A client. Inside `with s.client("b", weight=2):` this thread's calls are made as this client."""

    def __init__(self, session: Session, name: str, weight: int, priority: int, deadline: int = 0) -> None:
        self.session, self.name, self.weight, self.priority = session, name, weight, priority
        self.deadline = deadline  # nanoseconds from a call until its run is due; 0: none
        self._port: Port = session.driver.join(name, weight, priority)
        self._hears: dict[type, Callable[[Any], None]] = {
            p.RunEnded: self._ended, p.RunAgain: self._run_again, p.BuffersReady: self._settled,
            p.CallRefused: self._refused,
            p.Received: lambda said: self._fetched(said.request, said.blame, said.rows),
            p.ProgramTold: lambda said: self._compiling.discard(said.program),
            p.SliceSized: self._sized,
            p.SlicesRelocated: lambda said: self._relocated.update({said.request: ""}),
            p.GetAgain: lambda said: log.info("client %r: contents are asked for again: %s", name, said.blame),
            p.LogLine: lambda said: log.info("client %r: %s", name, said.text),
        }  # fmt: skip
        self._spans = session.spans.client(self) if session.spans else None  # OpenTelemetry's
        self._port.tell = self._heard
        self._port.tick = self._retried_due
        self._programs: dict[int, BoundProgram] = {}
        self._compiling: set[int] = set()  # programs that a first call waits for
        self._slices = SliceNames()
        self.name_of = self._slices.of
        self._runs: dict[int, tuple[Run, ArrayGroup | None]] = {}
        self._fetches: dict[int, Fetch] = {}
        self._ended_runs: list[Run] | None = None  # for `next_ended`, if that is asked
        self._elastic: dict[str, ElasticState] = {}  # what elastic slices are, by name
        self._relocated: dict[int, str] = {}  # what was asked for and is over: why it was not done, or ""
        self._dropped = DroppedArrays(None if self._spans is None else self._spans.given_back)
        self.given_up = self._dropped.given_up  # takes names of arrays that the user has given up
        self._waited = WaitedRuns()
        self._retried = RetryLog(name)
        self.earlier = EarlierCalls(name)
        self.closed = False

    def __enter__(self) -> Caller:
        self._may_call()
        ambient.enter(self)
        return self

    def __exit__(self, *exc: object) -> None:
        ambient.leave(self)

    @property
    def main(self) -> Caller:
        """This client itself. Sessions have `main` too."""
        return self

    def __repr__(self) -> str:
        return f"<client {self.name!r}, weight {self.weight}>"

    def now(self) -> int:
        return self._port.now()

    def known_as(self, run: int) -> tuple[int, int]:
        """This client's number and a run's, as the controller's trace has them."""
        client = self._port.client
        return client.number, client.sent_run(run)

    def _due(self) -> int:
        """When a run called now is due, by the client's and the entered deadlines; 0: never."""
        own = self.now() + self.deadline if self.deadline else 0
        asked = ambient.due_in(self.session)
        return min(own, asked) if own and asked else own or asked

    def called(self, home: Slice) -> str:
        return f"slice {self.name_of(home)!r}"

    # --- programs -----------------------------------------------------------------------------------------

    def run(self, signature: Signature, leaves: list[Any]) -> list[Any]:
        return self.submit(signature.graph or single(signature), leaves)

    def submit(self, graph: Graph, leaves: Sequence[Any], retries: int | None = None) -> list[Any]:
        """Submit one run and return its results, a flat list. `retries`: None means the session's."""
        if self.closed:
            self._may_call()
        if not graph.nodes:
            return [leaves[ref.index] for ref in graph.results if isinstance(ref, Given)]
        bound = self._programs.get(id(graph)) or self._bind(graph)
        if self.session.compiles_first and not bound.number:
            self._compile(bound)
        again = self.session.retries if retries is None else retries
        args, contents, temporary = arguments_of(self, bound, leaves, bool(again))
        due = self._due() if self.deadline or ambient.here.dues else 0
        begun = 0 if self._spans is None else self.now()
        donated = [leaf._name for at in graph.donated if type(leaf := leaves[at]) is Array]
        act = partial(self._submit, bound, args, due, again, donated, begun)
        run, arrays, taken = self._port.call(act)
        if again:
            run._takes = {each._name: each._label for each in contents if type(each) is Array}
        if self._port.submitted is not None:
            self._port.submitted(graph, contents, arrays)
        if graph.donate_args:
            self._given_up(taken, leaves, graph)
        del temporary
        if graph.all_made:
            return arrays
        made = iter(arrays)
        return [leaves[ref.index] if isinstance(ref, Given) else next(made) for ref in graph.results]

    def _bind(self, graph: Graph) -> BoundProgram:
        ir = graph.lower(self.name_of, self.session.driver.price)
        bound = self._programs[id(graph)] = BoundProgram(graph, ir)
        return bound

    def _submit(
        self, bound: BoundProgram, args: tuple[int | bytes | Range, ...], due: int, again: int,
        donated: Sequence[int], begun: int, client: Client, now: int,
    ) -> tuple[Run, list[Array], list[HeldNames]] | Blocked:  # fmt: skip
        self._dropped.release_with_call(client, now)
        if not bound.number and isinstance(blocked := self._register(client, now, bound), Blocked):
            return blocked
        if self._waited.until:
            self._waited.tell(client, now - self.now())  # core's clock may have started before the session's
        at = due and due + now - self.now()
        answer = client.submit(
            bound.number, args, now, keep=bound.keep, dispatch=self.session.dispatch, deadline=at, retries=again
        )
        if isinstance(answer, Blocked):
            return answer
        gone = ranges.folded(donated) if donated else ()
        taken = [part for names in gone for part in self._dropped.take(names)]
        graph, names, arrays, group = bound.graph, answer.results, list[Array](), None
        run = Run(self, answer.run, graph.name, due, _steps=bound.steps)
        if not graph.hidden:
            group = ArrayGroup(self, names, bound.results, self._dropped.names.append, run)
            self._hold(group)
            arrays += map(Array, repeat(group), bound.avals, names)
        self._runs[answer.run] = run, group
        if self._spans is not None:
            self._spans.called(run, graph, begun)
        return run, arrays, taken

    def _hold(self, group: ArrayGroup) -> None:
        first, abouts = group.names[0], group.abouts
        names, held = HeldNames(group, first, abouts, len(abouts)), self._dropped.held
        if names.count == 1:
            held[first] = names
        else:
            held.put(first, names)

    def _register(self, client: Client, now: int, bound: BoundProgram, tell: bool = False) -> int | Blocked:
        if len(self._programs) > PROGRAMS:
            self._forget_first(client, now)
        number = client.register(bound.ir, now, tell)
        if not isinstance(number, Blocked):
            bound.number = number
            if tell:
                self._compiling.add(number)
        return number

    def _compile(self, bound: BoundProgram) -> None:
        """Register the program, and wait until its code is ready, or never will be: then its runs say why."""
        number = self._port.call(lambda client, now: self._register(client, now, bound, tell=True))
        self._wait(lambda: number not in self._compiling, f"the code of {bound.graph.name!r}")

    def _forget_first(self, client: Client, now: int) -> None:
        """Unregister the oldest program. It is registered again when it is next called."""
        for key, first in self._programs.items():
            if first.number:
                del self._programs[key]
                client.unregister(first.number, now)
                return

    def _given_up(self, taken: Sequence[HeldNames], leaves: Sequence[Any], graph: Graph) -> None:
        """What the run has taken, and what it was given and no node uses."""
        gone = f"was donated to {graph.name!r}; do not donate it, or use what the call returned"
        for each in taken:
            each.group.give_up(each.first, each.count, gone)
        if not graph.all_used:
            for at in graph.donate_args:
                leaf = leaves[at]
                if type(leaf) is Array and graph.homes[at] is None:
                    leaf._group.give_up(leaf._name, 1, gone)
                    self.given_up.append(leaf._name)

    # --- contents -----------------------------------------------------------------------------------------

    def put(self, offers: Sequence[PlacedContents], again: bool = False) -> list[Array]:
        """Small ones by one call; the contents of large ones travel while the next are put. `again`: keep the contents,
        so that they can be put once more for a run that is retried."""
        self._may_call()
        begun = 0 if self._spans is None else self.now()
        made: list[Array] = []

        def act(client: Client, now: int) -> Blocked | None:
            self._dropped.release_with_call(client, now)
            total = 0
            for offer in offers[len(made) :]:
                total += offer.aval.nbytes
                if total > TOGETHER and total > offer.aval.nbytes:
                    break
                name = self._put(offer, client, now, again)
                if isinstance(name, Blocked):
                    return name
                made.append(name)
                if self._spans is not None:
                    self._spans.put(name, begun)
            return None

        while len(made) < len(offers):
            self._port.call(act)
        return made

    def _put(self, offer: PlacedContents, client: Client, now: int, again: bool) -> Array | Blocked:
        leaf, aval, home, sharding, label = offer
        value = Value(aval.shape, aval.dtype, 0, sharding)
        name = client.put(value, home.spec(self.name_of(home)), now, again=again)
        if isinstance(name, Blocked):
            return name
        about = DescribedArray(aval, home, sharding, label or f"what was put on {self.called(home)}")
        group = ArrayGroup(self, (name,), (about,), self._dropped.names.append)
        self._hold(group)
        self._port.offer(group.buffer(name), leaf, again)
        return Array(group, aval, name)

    def fetch(self, buffers: Sequence[ClientBuffer]) -> None:
        """Bring the buffers' contents here, into `host`."""
        for buffer in buffers:
            unreadable = self.unreadable(buffer)
            if unreadable is not None:
                self._wait_known([buffer])
                buffer.fail()
                if buffer.run is not None:
                    buffer.run._looked_at = True
                raise unreadable
        fetches = [Fetch(buffer) for buffer in buffers if buffer.host is None]
        begun = 0 if self._spans is None else self.now()
        try:
            self.begin_fetch(*fetches)
            for fetch in fetches:
                self._wait(partial(getattr, fetch, "over"), f"the contents of {fetch.buffer.about.label}")
            for fetch in fetches:
                if fetch.blame is not None:
                    fetch.buffer.spoil(fetch.blame)
                    fetch.buffer.fail()
        finally:
            if fetches and self._spans is not None:
                self._spans.read(fetches, begun)
        for fetch in fetches:
            self._waited.note(fetch.buffer.run, fetch.at)

    def begin_fetch(self, *fetches: Fetch) -> None:
        """By one call. Does not wait. The arrays may be dropped meanwhile."""
        if self.closed:
            self._may_call()
        begun = 0

        def act(client: Client, now: int) -> Blocked | None:
            nonlocal begun
            for fetch in fetches[begun:]:
                request = client.get(fetch.buffer.name, now)
                if isinstance(request, Blocked):
                    return request
                self._fetches[request] = fetch
                begun += 1
            if self._dropped:  # a wait follows, as in `flush`; in one message with the gets
                self._dropped.release_all(client, now)
            return None

        if fetches:
            self._port.call(act)

    def unreadable(self, buffer: ClientBuffer) -> Exception | None:
        if buffer.about.aval.dtype == avals.KEY:
            return TypeError(
                f"{buffer.label} is a random key, which numpy has no type for; in a computation, jax.random.key_data "
                f"turns it into numbers"
            )
        return self._port.unreadable(buffer)

    def peek(self, buffer: ClientBuffer) -> np.ndarray[Any, Any] | None:
        """For printing: the contents if they can be had. Waits until the buffer is ready or failed."""
        if buffer.host is None and buffer.blame is None and not self.closed:
            if self.unreadable(buffer) is None:
                try:
                    self.fetch([buffer])
                except Exception:
                    if buffer.blame is None:
                        raise
            else:
                self._wait_known([buffer])
        found: np.ndarray[Any, Any] | None = buffer.host
        return found

    # --- waiting ------------------------------------------------------------------------------------------

    def wait_ready(self, groups: Sequence[ArrayGroup], arrays: Sequence[Array]) -> None:
        """Wait until each of these arrays, which are of these groups, is ready or never will be."""
        apart = False
        for group in groups:
            if not (group.own or group.known):
                first = arrays[0] if len(groups) == 1 else next(x for x in arrays if x._group is group)
                self._wait(lambda group=group: group.own or group.known, first._label)  # type: ignore[misc]
            if group.own:
                apart = True
            else:
                self._waited.note(group.run, group.ready_at)
        if apart:
            self._wait_known([array._buffer for array in arrays if array._group.own])

    def _wait_known(self, buffers: Sequence[ClientBuffer]) -> None:
        for buffer in buffers:
            if not buffer.known:
                self._wait(lambda buffer=buffer: buffer.known, buffer.label)  # type: ignore[misc]
        for buffer in buffers:
            self._waited.note(buffer.run, buffer.ready_at)

    def wait_run(self, run: Run) -> None:
        self._wait(lambda: run.done, f"run {run.number} of {run.program!r}")
        self._waited.note(run, run.ended_at)

    def next_ended(self, until: int | None) -> list[Run]:
        """Wait until a run has ended that was submitted since this was asked first, or until this time; without one,
        only if a run is under way. Returns those that have ended since this was asked last."""
        if self._ended_runs is None:
            self._ended_runs = []
        self.flush()
        self._port.note(lambda client, now: client.send_all(now))
        if self._runs or until is not None:
            self._port.wait(lambda: bool(self._ended_runs), f"client {self.name!r} waits for a run to end", until=until)
        found, self._ended_runs = self._ended_runs, []
        return found

    def poll(self) -> None:
        self.flush()
        self._port.sleep(POLL)

    def drain(self) -> None:
        """Wait for those of this client's runs and fetches that are under way now: others may begin meanwhile."""
        runs, fetches = set(self._runs), set(self._fetches)
        self._wait(
            lambda: runs.isdisjoint(self._runs) and fetches.isdisjoint(self._fetches),
            f"all runs of client {self.name!r}",
        )
        self._retried.say()

    def _wait(self, over: Callable[[], bool], what: str) -> None:
        if not self.closed:
            late = self._dropped.release_all if self._dropped else None
            self._dropped.waits()
            self._port.wait(over, f"client {self.name!r} waits for {what}", late)
        elif not over():
            raise SessionClosed(f"the session was closed before {what} had come; wait for it inside the `with`")

    # --- giving back --------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Release all unreferenced buffers."""
        if self._dropped and not self.closed:
            self._port.note(self._dropped.release_all)
        self._dropped.waits()

    def cancel(self, run: Run) -> None:
        if not run.done:
            self._may_call()
            self._port.call(lambda client, now: client.cancel(run.number, now))

    def stop(self, run: Run) -> None:
        if not run.done:
            self._may_call()
            self._port.call(lambda client, now: client.stop(run.number, now))

    def release_slice(self, home: Slice | ElasticSlice) -> None:
        """Release a slice's devices. A slice that this client has not used has none."""
        if not isinstance(home, Slice | ElasticSlice):
            raise TypeError(f"session.release({home!r}): give the slice itself, as sw.slice(...) made it")
        self._may_call()
        name = self._slices.used(home)
        if name:
            if name in self._elastic:
                self._elastic.pop(name).over = True
            self._port.call(lambda client, now: client.release_slice(name, now))

    def forget_slice(self, home: Slice) -> None:
        """Release a slice that will not be used again, and the programs that need it."""
        name = self._slices.used(home)
        programs = [
            (key, bound) for key, bound in self._programs.items() if any(spec.name == name for spec in bound.ir.slices)
        ]
        self.release_slice(home)
        for key, bound in programs:
            del self._programs[key]
            if bound.number:
                self._port.note(partial(_unregister, bound.number))
        self._slices.forget(home)

    def resizes(self, home: ElasticSlice) -> Iterator[Slice]:
        """The first one is asked for at once, not when it is taken."""
        if not isinstance(home, ElasticSlice):
            raise TypeError(
                f"session.resizes({home!r}): a slice of several sizes, as sw.slice(devices=(4, 16)) makes it"
            )
        self._may_call()
        name = self.name_of(home)
        if name not in self._elastic:
            sized, like = self._elastic.setdefault(name, ElasticState(home)), home.spec(name)

            def ask(client: Client, now: int) -> int | Blocked:
                answer = client.elastic(name, like, home.sizes, now)
                sized.request = answer if isinstance(answer, int) else sized.request  # before it can be refused
                return answer

            self._port.call(ask)
        self._elastic[name].check(home, name)
        return self._resizes(name, self._elastic[name])

    def _resizes(self, name: str, sized: ElasticState) -> Iterator[Slice]:
        sized.waits |= sized.part is not None  # a second loop begins with what it is
        while True:
            self._wait(lambda: sized.waits or sized.told or sized.over, f"devices for slice {name!r}")
            if sized.wrong:
                raise NotNow(f"session.resizes: {sized.wrong}")
            if sized.over or self._port.call(partial(sized.move_on, name)) is None:  # it was released
                return
            assert sized.part is not None
            yield sized.part

    def _sized(self, said: p.SliceSized) -> None:
        if said.name in self._elastic:
            self._elastic[said.name].may_become(said.slice)

    def wait_run_or_size(self, run: Run, home: ElasticSlice) -> bool:
        """Wait until a run has ended, or an elastic slice may have another size. Whether the run has not ended."""
        sized = self._elastic[self._slices.used(home)]
        self._wait(lambda: run.done or sized.waits, f"run {run.number} of {run.program!r}, or another size")
        return not run.done

    def resized(self, home: ElasticSlice) -> bool:
        sized = self._elastic.get(self._slices.used(home))
        if sized is None:
            raise NotNow(f"session.resized: this client has not asked for {home!r}: session.resizes(slice) does")
        self.poll()
        sized.told = sized.waits
        return sized.waits

    def relocate(self, action: Literal["move", "suspend", "resume"], home: Slice | None, island: str = "") -> None:
        """Have a slice, or all, moved, suspended or resumed; wait until it is done. A slice that this client has not
        used has no devices."""
        if home is not None and not isinstance(home, Slice):
            raise TypeError(f"session.{action}({home!r}): give the slice itself, as sw.slice(...) made it")
        self._may_call()
        name = self._slices.used(home) if home is not None else ""
        if home is not None and not name:
            raise NotNow(f"session.{action}: client {self.name!r} has not used this slice, so it has no devices yet")
        request = self._port.call(lambda client, now: client.relocate(action, name, island, now))
        self._wait(lambda: request in self._relocated, f"slices to be {PAST[action]}")
        if wrong := self._relocated.pop(request):
            raise NotNow(f"session.{action}: {wrong}")

    # --- what comes ---------------------------------------------------------------------------------------

    def _heard(self, effect: Any) -> None:
        if self._retried.runs:
            self._retried_due()
        act = self._hears.get(type(effect))
        if act is not None:
            act(effect)
            if self._spans is not None:
                self._spans.hears(effect)

    def _ended(self, effect: p.RunEnded) -> None:
        """This settles the results that no earlier `BuffersReady` has settled."""
        run, group = self._runs.pop(effect.run)
        now = self._port.now()
        if effect.blame is not None:
            run.blame = run._final(effect.blame, effect.lacks)
            self.earlier.failure(run)
        run._steps -= effect.undone
        run.ended_at = now  # last of the run: who sees it may look at the blame
        if self._ended_runs is not None:
            self._ended_runs.append(run)
        if group is not None:
            group.end(now, run.blame)

    def _run_again(self, effect: p.RunAgain) -> None:
        run, _ = self._runs[effect.run]
        run.tries = effect.number
        self._retried.again(run, effect.blame, self._port.now())

    def _retried_due(self) -> None:
        self._retried.due(self._port.now())

    def _refused(self, effect: p.CallRefused) -> None:
        if effect.what == "get":
            self._fetched(effect.name, effect.blame)
        elif effect.what == "elastic":
            for name in [name for name, sized in self._elastic.items() if sized.request == effect.name]:
                self._elastic.pop(name).refuse(effect.blame.cause)
        elif effect.what == "relocate":
            self._relocated[effect.name] = effect.blame.cause
        else:
            log.info("client %r: a %s was refused: %s", self.name, effect.what, effect.blame)

    def _settled(self, effect: p.BuffersReady) -> None:
        now = self._port.now()
        for held, names in self._dropped.held.covering(ranges.folded(effect.buffers)):
            held.group.settle(names, now, effect.blame)

    def _fetched(self, request: int, blame: p.Blame | None, rows: int = -1) -> None:
        fetch = self._fetches.pop(request, None)
        if fetch is None:
            return
        if blame is None:  # contents are kept also when nobody waits any more: the next read then finds them
            found: np.ndarray[Any, Any] = self._port.contents(fetch.buffer, request)
            found = found[:rows] if rows >= 0 else found
            found.flags.writeable = False
            fetch.buffer.host = found
        fetch.over, fetch.blame, fetch.at = True, blame, self._port.now()

    # --- the end ------------------------------------------------------------------------------------------

    def _may_call(self) -> None:
        if self.closed:
            raise SessionClosed(f"the session of client {self.name!r} is closed; call inside its `with` block")

    def close(self) -> None:
        if not self.closed:
            self.flush()
            self.abandon()
            self._port.close()

    def abandon(self) -> None:
        self._retried.say()
        self.closed = True
        self._programs.clear()  # these lead to arrays, which the garbage collector does not see into
        self.earlier.notices.clear()


def _unregister(number: int, client: Client, now: int) -> None:
    client.unregister(number, now)
