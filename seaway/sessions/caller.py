"""One client of a session. User calls become calls of core's client; core's replies update runs, buffers and fetches.

Large arguments are put first; small ones travel in the call. Buffers whose arrays are no longer referenced are released
in groups, together with the next call or before a wait, so that releasing them does not double the messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from core import protocol as p
from core.client import Blocked, Client, Limits, Submitted
from core.model import Range, RangeTable, Value, ranges

from ..errors import SessionClosed
from ..graph import Given, Graph, single
from ..specs import Aval, Slice, avals
from . import ambient
from .arguments import BoundProgram, arguments_of
from .array_groups import ArrayGroup, ClientBuffer, DescribedArray, Fetch, HeldNames
from .arrays import Array, Run
from .dropped_arrays import DroppedArrays
from .earlier_calls import EarlierCalls
from .port import Port
from .retry_log import RetryLog
from .slice_names import SliceNames
from .waited_runs import WaitedRuns

if TYPE_CHECKING:
    from ..graph import Signature
    from .session import Session

PROGRAMS = Limits().max_programs  # programs registered at once; the oldest is unregistered to make room
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
            p.CallRefused: self._refused, p.LogLine: self._log, p.GetAgain: self._get_again,
            p.GetStarted: self._get_started, p.Received: self._received, p.ProgramTold: self._compiled,
        }  # fmt: skip
        self._spans = session.spans.client(self) if session.spans else None  # OpenTelemetry's
        self._port.tell = self._heard
        self._port.tick = self._retried_due
        self._programs: dict[int, BoundProgram] = {}
        self._compiling: set[int] = set()  # programs that a first call waits for
        self._slices = SliceNames()
        self.name_of = self._slices.of
        self._runs: dict[int, Run] = {}
        self._held: RangeTable[HeldNames] = RangeTable()
        self._fetches: dict[int, Fetch] = {}
        self._dropped = DroppedArrays(self._no_longer_held)
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
        due = self._due()
        begun = 0 if self._spans is None else self.now()
        donated = [leaf._name for at in graph.donated if type(leaf := leaves[at]) is Array]
        run, arrays, taken = self._port.call(
            lambda client, now: self._submit(client, now, bound, args, due, again, donated, begun)
        )
        if again:
            run._takes = {each._name: each._label for each in contents if type(each) is Array}
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
        self, client: Client, now: int, bound: BoundProgram, args: tuple[int | bytes | Range, ...], due: int,
        again: int, donated: Sequence[int], begun: int,
    ) -> tuple[Run, list[Array], list[HeldNames]] | Blocked:  # fmt: skip
        self._dropped.release_with_call(client, now)
        if not bound.number and isinstance(blocked := self._register(client, now, bound), Blocked):
            return blocked
        if self._waited.until:
            self._waited.tell(
                client, now - self._port.now()
            )  # core's clock may have started before the session's
        dispatch = self.session.dispatch
        at = due and due + now - self.now()  # on core's clock, which may have started before the session's
        answer = client.submit(
            bound.number, args, now, keep=bound.keep, dispatch=dispatch, deadline=at, retries=again
        )
        if isinstance(answer, Blocked):
            return answer
        gone = ranges.folded(donated) if donated else ()
        taken = [part for names in gone for part in self._no_longer_held(names)]
        run, arrays = self._results(bound, answer, due)
        if self._spans is not None:
            self._spans.called(run, bound.graph, begun)
        return run, arrays, taken

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

    def _compiled(self, effect: p.ProgramTold) -> None:
        self._compiling.discard(effect.program)

    def _forget_first(self, client: Client, now: int) -> None:
        """Unregister the oldest program. It is registered again when it is next called."""
        for key, first in self._programs.items():
            if first.number:
                del self._programs[key]
                client.unregister(first.number, now)
                return

    def _results(self, bound: BoundProgram, submitted: Submitted, due: int) -> tuple[Run, list[Array]]:
        graph = bound.graph
        run = self._runs[submitted.run] = Run(self, submitted.run, graph.name, due)
        if graph.hidden:
            return run, []
        names = submitted.results
        group = ArrayGroup(self, names, bound.results, self._dropped.names.append, run)
        self._held.put(names[0], HeldNames(group, names[0], len(names)))
        return run, list(map(Array, repeat(group), bound.avals, names))

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

    def _no_longer_held(self, names: int | Range) -> list[HeldNames]:
        """Returns those of these names that were held."""
        first, count = (names, 1) if isinstance(names, int) else (names.first, names.count)
        if self._spans is not None:
            self._spans.given_back((names,))
        return self._held.take(first, count)

    # --- contents -----------------------------------------------------------------------------------------

    def put(
        self, leaf: Any, aval: Aval, home: Slice, sharding: Any, label: str, again: bool = False
    ) -> Array:
        """`again`: keep the contents, so that they can be put once more for a run that is retried."""
        self._may_call()
        spec = home.spec(self.name_of(home))
        value = Value(aval.shape, aval.dtype, 0, sharding)
        begun = 0 if self._spans is None else self.now()

        def act(client: Client, now: int) -> Array | Blocked:
            self._dropped.release_with_call(client, now)
            name = client.put(value, spec, now, again=again)
            if isinstance(name, Blocked):
                return name
            about = DescribedArray(aval, home, sharding, label)
            group = ArrayGroup(self, (name,), (about,), self._dropped.names.append)
            self._held.put(name, HeldNames(group, name))
            self._port.offer(group.buffer(name), leaf, again)
            array = Array(group, aval, name)
            if self._spans is not None:
                self._spans.put(array, begun)
            return array

        return self._port.call(act)

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
            for fetch in fetches:
                self.begin_fetch(fetch)
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

    def begin_fetch(self, fetch: Fetch) -> None:
        """Does not wait. The array may be dropped meanwhile."""
        if self.closed:
            self._may_call()

        def act(client: Client, now: int) -> int | Blocked:
            request = client.get(fetch.buffer.name, now)
            if not isinstance(request, Blocked):
                self._fetches[request] = fetch
                fetch.request = request
                if self._dropped:  # a wait follows, as in `flush`; in one message with the get
                    self._dropped.release_all(client, now)
            return request

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
        self.flush()
        if not self.closed:
            self._port.wait(over, f"client {self.name!r} waits for {what}")
        elif not over():
            raise SessionClosed(
                f"the session was closed before {what} had come; wait for it inside the `with`"
            )

    # --- giving back --------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Release all unreferenced buffers. Done before a wait, since the awaited run may need their memory."""
        if self._dropped and not self.closed:
            self._port.note(self._dropped.release_all)
        self._dropped.waits()

    def cancel(self, run: Run) -> None:
        if not run.done:
            self._may_call()
            self._port.call(lambda client, now: client.cancel(run.number, now))

    def release_slice(self, home: Slice) -> None:
        """Release a slice's devices. A slice that this client has not used has none."""
        if not isinstance(home, Slice):
            raise TypeError(f"session.release({home!r}): give the slice itself, as sw.slice(...) made it")
        self._may_call()
        name = self._slices.used(home)
        if name:
            self._port.call(lambda client, now: client.release_slice(name, now))

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
        run = self._runs.pop(effect.run)
        if effect.blame is not None:
            run.blame = run._final(effect.blame, effect.lacks)
            self.earlier.failure(run)
        run.ended_at = self._port.now()  # last: whoever sees it may look at the blame

    def _run_again(self, effect: p.RunAgain) -> None:
        run = self._runs[effect.run]
        run.tries = effect.number
        self._retried.again(run, effect.blame, self._port.now())

    def _retried_due(self) -> None:
        self._retried.due(self._port.now())

    def _refused(self, effect: p.CallRefused) -> None:
        if effect.what == "get":
            self._fetched(effect.name, effect.blame)
        else:
            log.info("client %r: a %s was refused: %s", self.name, effect.what, effect.blame)

    def _log(self, effect: p.LogLine) -> None:
        log.info("client %r: %s", self.name, effect.text)

    def _get_again(self, effect: p.GetAgain) -> None:
        log.info("client %r: contents are asked for again: %s", self.name, effect.blame)

    def _get_started(self, effect: p.GetStarted) -> None:
        if effect.request in self._fetches:
            self._fetches[effect.request].rows = effect.rows

    def _received(self, effect: p.Received) -> None:
        self._fetched(effect.request, effect.blame)

    def _settled(self, effect: p.BuffersReady) -> None:
        now, blame = self._port.now(), effect.blame
        for each in ranges.folded(effect.buffers):
            first, count = (each, 1) if isinstance(each, int) else (each.first, each.count)
            whole = self._held.get(first)
            if whole is not None and whole.count == count == len(whole.group.abouts) and blame is None:
                whole.group.ready(now)
                for buffer in list(whole.group.own.values()):
                    buffer.ready(now)
                continue
            for name in range(first, first + count):
                held = self._held.find(name)
                if held is None:
                    continue
                if blame is None:
                    held.group.buffer(name).ready(now)
                elif held.group.outcome(name).blame is None:
                    held.group.buffer(name).lost(blame)

    def _fetched(self, request: int, blame: p.Blame | None) -> None:
        fetch = self._fetches.pop(request, None)
        if fetch is not None:
            if blame is None:
                fetch.buffer.host = self._contents(fetch)
            fetch.over, fetch.blame, fetch.at = True, blame, self._port.now()

    def _contents(self, fetch: Fetch) -> np.ndarray[Any, Any]:
        """They are kept as they come, also when nobody waits any more: the next read then finds them."""
        found: np.ndarray[Any, Any] = self._port.contents(fetch.buffer, fetch.request)
        found = found[: fetch.rows] if fetch.rows >= 0 else found
        found.flags.writeable = False
        return found

    # --- the end ------------------------------------------------------------------------------------------

    def _may_call(self) -> None:
        if self.closed:
            raise SessionClosed(
                f"the session of client {self.name!r} is closed; call inside its `with` block"
            )

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
