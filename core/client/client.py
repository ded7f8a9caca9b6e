"""One client as a machine: the user calls, names are given at once, and no call awaits an answer.

    run, results = client.submit(program, args, now)   # a call: names come back, a message may leave
    effects = client.handle(CallsMade(), now)             # what the driver is to do about it
    effects = client.handle(MessageReceived(peer, notes), now)    # what the controller says: RunEnded, BuffersReady ...

A lone call is never delayed, a thousand small ones are few messages, and a call that frees memory never waits for one
that needs it. At most `max_runs` runs and `max_requests` puts and gets are under way. A call beyond is answered
`Blocked` and changes nothing; `Unblocked` follows when there is room.

This module checks what the user calls and makes the parts of the machine. Neighbours: `outgoing_calls` makes the calls,
`client_session` hears the controller, `content_transfers` the hosts, and `retries` makes calls again.
"""

from collections.abc import Callable

from .. import protocol as p
from ..model import Hosts, Illegal, Program, Range, SliceSpec, Value, ranges
from ..transfer import CHUNK, POOL, Transfer
from .call_batching import CallBatching
from .client_limits import MAY_CALL, SESSION, Blocked, Limits, Submitted
from .client_session import ClientSession
from .client_state import ClientState, RegisteredProgram
from .content_transfers import DATA, ContentTransfers
from .outgoing_calls import Action, OutgoingCalls
from .retries import Retries

DISPATCH = ("parallel", "sequential")
HEARS = ("open", "closing")  # phases in which it hears the controller
S = 1_000_000_000


class Client:
    """`hosts`: which devices each host of the cluster has. `pool`, `chunk`: see `transfer`. `transfer`: makes the
    machine that moves contents; a driver may have one of its own."""

    def __init__(
        self, name: str, hosts: Hosts, *, weight: int = 1, priority: int = 0, limits: Limits | None = None,
        pool: int = POOL, chunk: int = CHUNK, transfer: Callable[[int, int, int], Transfer] = Transfer,
    ) -> None:  # fmt: skip
        if weight < 1:
            raise Illegal(f"a client's weight is a whole number of at least 1, not {weight}")
        self.limits = limits if limits is not None else Limits()
        state = self._state = ClientState(p.Open(name, weight, priority), self.limits)
        self._out = state.out
        self._batching = CallBatching(self.limits, state.out)
        self._calls = OutgoingCalls(state, self._batching)
        self._retries = Retries(state, self._calls)
        self._transfers = ContentTransfers(state, self._retries, hosts, pool, chunk, transfer)
        self._session = ClientSession(state, self._batching, self._calls, self._retries, self._transfers)

    @property
    def state(self) -> str:
        """The phase of the session: "new", "open", "away", "closing" or "closed"."""
        return self._state.phase

    @property
    def why_over(self) -> str:
        """Why it is "closing" or "closed"."""
        return self._state.why_over

    @property
    def number(self) -> int:
        """By which the controller knows this client; 0 if it has not said."""
        return self._state.number

    def sent_run(self, run: int) -> int:
        """By which number the controller, and its trace, know the last try of a run."""
        return self._retries.sent_run(run)

    @property
    def unfinished(self) -> int:
        """How many runs have not ended."""
        return len(self._state.runs) + len(self._retries.waiting)

    @property
    def expecting(self) -> bool:
        """Whether the user was promised news besides those of runs and contents: that there is room for calls again, or
        that a program is compiled."""
        return self._state.blocked or bool(self._state.untold)

    # --- runs ---------------------------------------------------------------------------------------------

    def submit(
        self, program: int, args: tuple[int | bytes | Range, ...], now: int, *, keep: tuple[bool, ...] = (),
        dispatch: str = "parallel", deadline: int = 0, retries: int = 0,
    ) -> Submitted | Blocked:  # fmt: skip
        """`args`: names of buffers, or ranges of them, and literals. `keep`: which results to hold; () stands for all.
        `retries`: how often the run is submitted again when the cluster fails it. Donated arguments are gone when this
        returns."""
        state, again = self._state, self._retries
        known = state.programs.get(program)
        if known is None or state.phase not in MAY_CALL:
            raise self._no_program(program)
        sent, each = args, tuple[int | bytes, ...]()
        if retries or again.buffers:
            each = tuple(ranges.each(args))
            why = again.why_blocked(each)
            if why:
                return self._block(why)
            sent = again.sent_args(each)
        few = len(sent) < self.limits.together and type(sent) is tuple
        named = sent if few else ranges.folded(sent, self.limits.together)
        self._check(known, named, keep, dispatch)
        under_way = len(state.runs) + len(again.waiting)
        if under_way >= self.limits.max_runs:
            return self._block(f"{under_way} runs have not ended")
        waited: tuple[int, ...] = ()
        if state.waited:
            waited = tuple(state.waited)
            state.waited.clear()
        since, state.thinking_since = state.thinking_since, now
        think = now - since if since is not None and now > since else 0
        made = self._calls.submit(program, known, named, keep or known.keep_all, dispatch, deadline, waited, think, now)
        if retries or again.buffers:
            again.submitted(made, program, known, each, dispatch, deadline, retries)
        return made

    def _check(
        self, known: RegisteredProgram, named: tuple[int | bytes | Range, ...], keep: tuple[bool, ...], dispatch: str
    ) -> None:
        """`named`: the arguments, those with consecutive names as one."""
        sizes, state, count = known.sizes, self._state, ranges.number(named)
        if count != len(sizes):
            raise Illegal(f"program {known.ir.name!r} takes {len(sizes)} arguments, not {count}")
        if keep and len(keep) != known.results:
            raise Illegal(f"program {known.ir.name!r} has {known.results} results; `keep` names {len(keep)}")
        if dispatch not in DISPATCH:
            raise Illegal(f"dispatch is 'parallel' or 'sequential', not {dispatch!r}")
        literal = index = 0
        for arg in named:
            if isinstance(arg, bytes):
                if len(arg) != sizes[index]:
                    raise Illegal(f"argument {index} has {len(arg)} bytes; its type has {sizes[index]}")
                literal += len(arg)
                index += 1
                continue
            first, count = (arg, 1) if isinstance(arg, int) else (arg.first, arg.count)
            held = state.buffers.get(first)
            if held is None or held.count != count:
                state.check_buffers(first, count)
            index += count
        if known.donates and len(named) > 1 and not ranges.once([arg for arg in named if not isinstance(arg, bytes)]):
            _check_donated_once(ranges.each(named), known.donates)
        if literal > self.limits.literal:
            raise Illegal(f"{literal} bytes ride in the call, and {self.limits.literal} may; `put` them first")

    def cancel(self, run: int, now: int) -> None:
        """The run still ends, once: with a blame, or without if it was over before the controller heard."""
        if self._retries.cancel(run, now):
            return
        state, run = self._state, self._retries.sent_run(run)
        self._may_call()
        if not 0 < run <= state.last_run:
            raise Illegal(f"run {run} was never submitted by this client; cancel a run that `submit` returned")
        if run in state.runs and run not in state.cancelled:
            state.cancelled.add(run)
            self._calls.call(p.Cancel(run), now)

    def stop(self, run: int, now: int) -> None:
        """Its computations of several steps are to end with the step under way. It ends well; RunEnded says how many
        steps it has left undone."""
        self._may_call()
        self._retries.stop(run)
        if self._retries.sent_run(run) in self._state.runs:
            self._calls.call(p.StopRun(self._retries.sent_run(run)), now)

    def waited(self, run: int, now: int) -> None:
        """The user's code was waiting for this run's end, and could go on from `now` on: the next call depends on it.
        This may be told later than `now`. What the user did since the last of such times counts as thinking."""
        sent_run, state = self._retries.sent_run(run), self._state
        if self._retries.holds(run) or sent_run in state.runs or not 0 < sent_run <= state.last_run:
            raise Illegal(f"run {run} has not ended; say that it was waited for after its RunEnded")
        state.waited[sent_run] = None
        while len(state.waited) > self.limits.max_runs:
            del state.waited[next(iter(state.waited))]
        since = state.thinking_since
        state.thinking_since = now if since is None else max(since, now)

    def longest_wait(self, now: int) -> str:
        """What a run or put waits for, as the controller said last, and for how long: of the one that waits longest.
        "" if nothing is known to wait."""
        if not self._state.waits:
            return ""
        reason, since = min(self._state.waits.values(), key=lambda each: each[1])
        return f"{reason}, {max(0, now - since) // S} s"

    # --- programs, buffers, slices ------------------------------------------------------------------------

    def register(self, program: Program, now: int, tell: bool = False) -> int | Blocked:
        """`tell`: ProgramTold says when its code is compiled, and what is known of it then."""
        self._may_call()
        programs = self._state.programs
        if len(programs) >= self.limits.max_programs:
            raise Illegal(f"{len(programs)} programs are registered; unregister some first")
        if not self._calls.room():
            return self._block("calls wait for the controller")
        return self._calls.register(program, now, tell)

    def unregister(self, program: int, now: int) -> None:
        if program not in self._state.programs:
            raise self._no_program(program)
        self._may_call()
        self._calls.unregister(program, now)

    def put(self, value: Value, where: SliceSpec, now: int, *, again: bool = False) -> int | Blocked:
        """A buffer whose contents this client sends straight to the hosts, after PutStarted. `again`: its contents will
        be kept until `PutContentsUnneeded`, and offered as often as `PutStarted` asks."""
        self._may_call()
        if len(self._state.requests) >= self.limits.max_requests:
            return self._block(f"{len(self._state.requests)} puts and gets are under way")
        buffer = self._calls.put(value, where, now)
        if again:
            self._retries.put(buffer, value, where)
        return buffer

    def view(self, value: Value, where: SliceSpec, shards: tuple[tuple[int, int], ...], now: int) -> int | Blocked:
        """A buffer made of shards of others, on the same devices: nothing is copied. BuffersReady tells of it as of any
        result, with a blame if a source fails or is lost, or if a shard does not lie where it should.

        `value` and `where` are its type and slice, as in `put`. `shards` has one entry for each device of the slice, in
        its order: (source, which of the source's distinct shards is on that device; they are numbered row-major, as in
        `get`). Each must have the type and shape of a shard of the view. Sources may be results that have not been
        made yet, and other views; not results of irregular computations.

        Sources may be released at once: their memory stays until the view, and all that reads it, is gone. A run to
        which the view, or a source that it shares, is donated gets memory of its own, and leaves the shared memory as
        it is. A view is not made again by retries."""
        self._may_call()
        names = tuple(dict.fromkeys(source for source, _ in shards))
        if self._retries.buffers:
            why = self._retries.why_blocked(names)
            if why:
                return self._block(why)
            shards = tuple([(self._retries.sent(source), shard) for source, shard in shards])
        for source in dict.fromkeys(source for source, _ in shards):
            self._state.check_buffers(source)
        if len(shards) != where.devices:
            raise Illegal(
                f"a view on slice {where.name!r} takes a shard for each of its {where.devices} devices, "
                f"not {len(shards)}"
            )
        if not self._calls.room():
            return self._block("calls wait for the controller")
        return self._calls.view(value, where, shards, now)

    def get(self, buffer: int, now: int, shard: int = -1) -> int | Blocked:
        """Returns the request; the contents come straight from the hosts, after GetStarted. `shard`: only this one of
        the distinct shards, which are numbered row-major."""
        sent = buffer
        if self._retries.buffers:
            why = self._retries.why_blocked((buffer,))
            if why:
                return self._block(why)
            sent = self._retries.sent(buffer)
        self._may_call()
        self._state.check_buffers(sent)
        if len(self._state.requests) >= self.limits.max_requests:
            return self._block(f"{len(self._state.requests)} puts and gets are under way")
        request = self._calls.get(sent, now, shard)
        self._retries.asked(request, buffer, shard)
        return request

    def release(self, buffers: tuple[int | Range, ...], now: int) -> None:
        """Names, or ranges of them."""
        self._may_call()
        if len(buffers) > 1 and not ranges.once(buffers):
            raise Illegal(f"a buffer is named twice in {buffers}; release it once")
        sent = self._retries.releasable(tuple(ranges.each(buffers))) if self._retries.buffers else buffers
        named = sent
        if len(sent) > 1:
            alone = sorted([each for each in sent if isinstance(each, int)])
            wide = tuple([each for each in sent if isinstance(each, Range)])
            named = ranges.folded(alone, self.limits.together) + wide
        for each in named:
            self._state.check_buffers(*((each, 1) if isinstance(each, int) else (each.first, each.count)))
        self._calls.release(named, now)
        if self._retries.buffers:
            self._retries.released(ranges.each(buffers))

    def release_slice(self, name: str, now: int) -> Blocked | None:
        self._may_call()
        if not self._calls.room():
            return self._block("calls wait for the controller")
        self._calls.release_slice(name, now)
        return None

    def elastic(self, name: str, like: SliceSpec, sizes: tuple[int, ...], now: int) -> int | Blocked:
        """A slice of one of these sizes. Returns the request: SliceSized tells which slice it can be, each time that
        this changes, or CallRefused says that it can be none. `release_slice` with this name releases whatever it is.
        """
        self._may_call()
        if name in self._state.elastic:
            raise Illegal(f"elastic slice {name!r} was asked for before: release it first")
        if not self._calls.room():
            return self._block("calls wait for the controller")
        return self._calls.elastic(name, like, sizes, now)

    def move_on(self, name: str, now: int) -> SliceSpec | Blocked | None:
        """Returns the slice that an elastic one is from now on, and releases the one before. None: it was released."""
        self._may_call()
        asked = self._state.elastic.get(name)
        if asked is None:
            return None
        blocked = self.release_slice(asked.before, now) if asked.before else None
        return blocked or asked.has

    def relocate(self, action: Action, name: str, island: str, now: int) -> int | Blocked:
        """Returns the request: SlicesRelocated, or CallRefused, tells of it. `name`, `island`: as in `Relocate`."""
        self._may_call()
        if len(self._state.requests) >= self.limits.max_requests:
            return self._block(f"{len(self._state.requests)} requests are under way")
        return self._calls.relocate(action, name, island, now)

    def send_all(self, now: int) -> None:
        """The user waits for any of several things, and makes no call with which these could leave."""
        if self._state.phase == "open":
            self._batching.send_all(now)

    def close(self, now: int) -> None:
        """Goodbye: what was called before still leaves; runs that have not ended are given up."""
        self._session.close(now)

    # --- the machine --------------------------------------------------------------------------------------

    def handle(self, event: p.Event, now: int) -> list[p.Command]:
        if isinstance(event, p.MessageReceived):
            if type(event.message) in DATA:
                self._transfers.came(event, now)
            elif self._state.phase in HEARS:
                self._session.came(event.message, now)
        elif not isinstance(event, p.CallsMade):
            self._told(event, now)
        retries, transfers = self._retries, self._transfers
        if retries.waiting or retries.asking:
            retries.try_again(now)
        if transfers.said:
            transfers.follow(now)
            if retries.asking:
                retries.try_again(now)
        said = self._out[:]
        self._out.clear()
        return said

    def _told(self, event: p.Event, now: int) -> None:
        match event:
            case p.Wakeup():
                if self._state.phase == "open":
                    self._batching.send(now)
            case p.Connected(peer=peer):
                if peer == p.CONTROLLER and (self._state.phase, "connected") in SESSION:
                    self._session.connected(now)
            case p.Disconnected(peer=peer):
                if peer == p.CONTROLLER:
                    self._session.disconnected(event, now)
                else:
                    self._transfers.host_lost(event, now)
            case _:
                raise Illegal(f"a client is not told of {type(event).__name__}")

    def next_wakeup(self) -> int | None:
        if self._state.phase != "open":
            return None
        calls = self._batching.next_wakeup() if self._batching.gathered else None
        runs = self._retries.next_wakeup() if self._retries.waiting else None
        return runs if calls is None or (runs is not None and runs < calls) else calls

    # --- small things -------------------------------------------------------------------------------------

    def _may_call(self) -> None:
        if self._state.phase not in MAY_CALL:
            raise Illegal(f"the session is over: {self._state.why_over}; open another one")

    def _no_program(self, program: int) -> Illegal:
        self._may_call()
        known = 0 < program <= self._state.last_program
        why = "was unregistered" if known else "is no program of this client"
        return Illegal(f"program {program} {why}; register it first")

    def _block(self, why: str) -> Blocked:
        self._state.blocked = True
        return Blocked(why)


def _check_donated_once(args: list[int | bytes], donates: tuple[int, ...]) -> None:
    for index in donates:
        if isinstance(args[index], int) and args.count(args[index]) > 1:
            raise Illegal(f"buffer {args[index]!r} is donated as argument {index} and passed again; pass a copy")
