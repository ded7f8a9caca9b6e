"""What is submitted or asked again when the cluster failed it, and the names that it has with the user.

    client.submit(program, args, now, retries=3)     # RunEnded comes once: for the try that succeeded, or the last

A run is submitted again when a host, a device, a collective world or the controller was lost. A failure of the run's
own code, a refusal, a cancellation or a time-out would only happen again. The user's names stay: a result is the same
future, whichever try makes it. The controller hears of another run with other results each time. So the rules are:

- Until such a run has ended, its arguments are held, even if the user lets go of them. A donated argument is gone. A
  put with `again=True` can be put again, since its contents are kept until `PutContentsUnneeded`.
- A run that has failed waits (`pause`), and then goes in the order in which the user called: behind the runs that make
  what it reads. If an argument is lost or donated, the failure is final, and `RunEnded.lacks` names the argument.
- Later runs that were under way and read its results have failed with it. Those that have retries of their own are
  submitted again behind it; others have failed. A call made while it waits, and that reads its results, is `Blocked`.
- A get fails only if its buffer is lost, or a peer was out of reach for a lease: one that was cut short by a peer that
  began anew is asked again.

Neighbours: `client` asks it about names, `client_session` and `content_transfers` tell it what failed;
`outgoing_calls` makes the calls again.
"""

from collections.abc import Iterable

import msgspec

from .. import protocol as p
from ..model import Illegal, Program, SliceSpec, Value, ranges
from .client_limits import MAY_CALL, Submitted
from .client_state import REMEMBERED, ClientState, RegisteredProgram
from .outgoing_calls import RELEASED, OutgoingCalls, donated_to

# Codes of blames that are not the fault of anything that the user wrote. "client-lost": a host has not heard of this
# client for too long, though it is here. (When the session itself is over, nothing is submitted any more.)
INFRASTRUCTURE = ("host-lost", "host-left", "device-lost", "restart", "world", "lost", "peer", "client-lost")
FIRST = 100_000_000  # nanoseconds from a failure to the next try; twice as long each time ...
MOST = 10_000_000_000  # ... and no longer than this


def infrastructure(blame: p.Blame) -> bool:
    """Whether something of the cluster was lost, so that the same again may succeed."""
    return blame.code in INFRASTRUCTURE


def pause(tries: int) -> int:
    """Before the run is submitted for the `tries`th time again."""
    return min(FIRST << min(tries - 1, 32), MOST)


class HeldRun(msgspec.Struct, eq=False):
    """A run that may be submitted again, until it has ended. All names are the user's."""

    run: int
    program: int
    ir: Program
    args: tuple[int | bytes, ...]
    results: tuple[int, ...]
    dispatch: str
    deadline: int
    retries: int
    tries: int = 0  # how often it was submitted again
    due: int = -1  # when it will be, while it waits for that
    stuck: bool = False  # that time has passed, and something else is awaited
    blame: p.Blame | None = None  # its last failure
    cancelled: bool = False
    stopped: bool = False  # so is its next try

    @property
    def waits(self) -> bool:
        return self.due >= 0

    def reads(self) -> list[int]:
        return [arg for arg in self.args if isinstance(arg, int)]

    def goes_on(self, blame: p.Blame) -> bool:
        return infrastructure(blame) and self.tries < self.retries and not self.cancelled


class HeldBuffer(msgspec.Struct, eq=False):
    """A buffer that a held run makes or reads, that can be put again, or that has another name with the controller."""

    name: int  # the user's
    sent_name: int  # the controller's
    maker: HeldRun | None = None
    readers: int = 0  # held runs that may need it again
    hidden: str = ""  # why the user may not name it any more, while runs hold it
    contents: tuple[Value, SliceSpec] | None = None  # of a put that is kept

    def check_named(self) -> None:
        if self.hidden:
            raise Illegal(f"buffer {self.name} {self.hidden}")

    @property
    def idle(self) -> bool:
        """It is as any other buffer."""
        return self.maker is None and not self.readers and self.contents is None and self.sent_name == self.name


class AskedGet(msgspec.Struct, eq=False):
    """A get, until its contents are here or never will be. `buffer` and `request` are the user's names, `sent_name` is
    the controller's for the request. `blame`: why it is to be asked again."""

    request: int
    sent_name: int
    buffer: int
    shard: int
    tries: int = 0
    blame: p.Blame | None = None


class Retries:
    def __init__(self, state: ClientState, calls: OutgoingCalls) -> None:
        self._state, self._calls, self._out = state, calls, state.out
        self.announced: tuple[object, ...] = ()  # notes of the message that is being heard
        # by the user's names
        self.buffers: dict[int, HeldBuffer] = {}
        self._held: dict[int, HeldRun] = {}
        self.waiting: dict[int, HeldRun] = {}  # runs that are to be submitted again
        self._last_tries: dict[int, int] = {}  # -> the controller's name of the last try, where it is another
        self._gets: dict[int, AskedGet] = {}
        self.asking: dict[int, AskedGet] = {}  # gets that are to be asked again
        # by the controller's names
        self.trying: dict[int, HeldRun] = {}  # runs that are under way
        self._renamed: dict[int, int] = {}  # buffers -> the user's name, where it is another
        self._renamed_gets: dict[int, int] = {}

    # --- what the user calls ------------------------------------------------------------------------------

    def why_blocked(self, names: Iterable[int | bytes]) -> str:
        """Why a call that reads these must wait: the run that makes one of them waits for its next try. "" if it need
        not. Raises if the user has let go of one."""
        why = ""
        for name in names:
            buffer = self.buffers.get(name) if isinstance(name, int) else None
            if buffer is None:
                continue
            buffer.check_named()
            if buffer.maker is not None and buffer.maker.waits and not why:
                maker = buffer.maker
                maker_name = f"run {maker.run} of {maker.ir.name!r}"
                why = f"{maker_name} is submitted again, and makes what this call reads"
        return why

    def sent(self, name: int) -> int:
        """The controller's name of a buffer."""
        buffer = self.buffers.get(name)
        return name if buffer is None else buffer.sent_name

    def sent_args(self, args: tuple[int | bytes, ...]) -> tuple[int | bytes, ...]:
        if not self._renamed:
            return args
        return tuple([self.sent(arg) if isinstance(arg, int) else arg for arg in args])

    def sent_run(self, run: int) -> int:
        return self._last_tries.get(run, run)

    def holds(self, run: int) -> bool:
        return run in self._held

    def submitted(
        self, made: Submitted, program: int, known: RegisteredProgram, args: tuple[int | bytes, ...], dispatch: str,
        deadline: int, retries: int,
    ) -> None:  # fmt: skip
        """`args`: by the user's names."""
        if retries:
            held = HeldRun(made.run, program, known.ir, args, made.results, dispatch, deadline, retries)
            self._held[held.run] = self.trying[held.run] = held
            for name in held.results:
                if name:
                    self._buffer(name).maker = held
            for name in held.reads():
                self._buffer(name).readers += 1
        for index in known.donates:
            buffer = self.buffers.get(args[index])  # type: ignore[arg-type]  # a literal is the name of nothing
            if buffer is not None and buffer.readers:
                buffer.hidden = donated_to(made.run, known.ir)
            elif buffer is not None:
                self._forget(buffer)

    def put(self, name: int, value: Value, where: SliceSpec) -> None:
        """Its contents are kept, and it can be put again."""
        self._buffer(name).contents = value, where

    def asked(self, request: int, buffer: int, shard: int) -> None:
        self._gets[request] = AskedGet(request, request, buffer, shard)

    def releasable(self, names: tuple[int, ...]) -> tuple[int, ...]:
        """Those that no held run needs, by the controller's names. Raises if the user has let go of one before."""
        if not self.buffers:
            return names
        found = []
        for name in names:
            buffer = self.buffers.get(name)
            if buffer is None:
                found.append(name)
                continue
            buffer.check_named()
            if not buffer.readers:
                found.append(buffer.sent_name)
        return tuple(found)

    def released(self, names: Iterable[int]) -> None:
        """The user has let go of these."""
        for name in names if self.buffers else ():
            buffer = self.buffers.get(name)
            if buffer is None:
                continue
            if buffer.readers:
                buffer.hidden = RELEASED
            else:
                self._forget(buffer)

    def cancel(self, run: int, now: int) -> bool:
        """Whether that is all: it was waiting for its next try."""
        held = self._held.get(run)
        if held is None:
            return False
        held.cancelled = True
        if not held.waits:
            return False
        self._finish(held, p.Blame("cancelled", "cancelled by its client", held.ir.name), now)
        return True

    def stop(self, run: int) -> None:
        if run in self._held:
            self._held[run].stopped = True

    # --- what the controller says ---------------------------------------------------------------------------

    def named(self, buffer: int) -> int:
        """The user's name of a buffer."""
        return self._renamed.get(buffer, buffer)

    def named_get(self, request: int) -> int:
        return self._renamed_gets.get(request, request)

    def told(self, buffers: list[int], blame: p.Blame | None) -> list[int]:
        """The user's names of those buffers about which the user is told now. If the cluster lost a result of a held
        run, the user hears of it at the end of that run."""
        names = [self.named(buffer) for buffer in buffers]
        if blame is None or not infrastructure(blame):
            return names
        return [name for name in names if name not in self.buffers or self.buffers[name].maker is None]

    def ended(self, held: HeldRun, blame: p.Blame | None, now: int, undone: int = 0) -> None:
        """Its last try has ended."""
        if blame is None or not held.goes_on(blame) or self._state.phase not in MAY_CALL:
            self._finish(held, blame, now, undone=undone)
        elif lacks := self._lacks(held):
            self._finish(held, blame, now, lacks)
        else:
            held.tries += 1
            held.due, held.blame, held.stuck = now + pause(held.tries), blame, False
            self.waiting[held.run] = held
            self._out.append(p.RunAgain(held.run, blame, held.tries, held.due))

    def get_ended(self, request: int, blame: p.Blame | None, again: bool = True) -> bool:
        """Its contents have come, or will not come this time. Whether it is asked again; if not, it is over. `again`:
        False if a peer is out of reach, as whoever waits is to hear; the array is still there to be read later."""
        asked = self._gets.get(request)
        if asked is None:
            return False
        if (
            blame is not None
            and again
            and infrastructure(blame)
            and asked.tries < self._state.limits.get_retries
            and self._state.phase in MAY_CALL
            and (self._made_again(asked.buffer) or self._there(asked.buffer))
        ):
            asked.tries += 1
            asked.blame = blame
            self.asking[asked.request] = asked
            return True
        self._drop_get(asked)
        return False

    # --- again ------------------------------------------------------------------------------------------------

    def next_wakeup(self) -> int | None:
        return min((held.due for held in self.waiting.values() if not held.stuck), default=None)

    def try_again(self, now: int) -> None:
        """Runs and gets that may be tried again are; runs in the order in which the user called them."""
        state = self._state
        if state.phase not in MAY_CALL:
            blame = p.Blame("client-lost", "the session was closed")
            for number in sorted(self.waiting):
                held = self.waiting[number]
                self._finish(held, held.blame or blame, now)
            for asked in list(self.asking.values()):
                self._refuse(asked)
        elif state.phase == "open":
            for number in sorted(self.waiting):
                held = self.waiting[number]
                if held.due <= now:
                    self._try_run(held, now)
            for asked in list(self.asking.values()):
                self._ask_again(asked, now)

    def _try_run(self, held: HeldRun, now: int) -> None:
        lacks = self._lacks(held)
        if lacks:
            self._finish(held, held.blame, now, lacks)
        else:
            held.stuck = not self._may_go(held) or not self._submit_again(held, now)

    def _lacks(self, held: HeldRun) -> tuple[tuple[int, str], ...]:
        """Arguments that are gone, and that no run will make and no put will bring again. The message that is being
        heard may say so only further on."""
        found = []
        lost = {
            name
            for note in self.announced
            if type(note) is p.ContentsReady and note.blame is not None
            for name in ranges.each(note.buffers)
        }
        for name in dict.fromkeys(held.reads()):
            buffer = self.buffers[name]
            state = self._state.state_of(buffer.sent_name)
            there = state in ("promised", "ready") and buffer.sent_name not in lost
            if not there and buffer.maker is None and buffer.contents is None:
                found.append((name, "lost" if state else "donated"))
        return tuple(found)

    def _may_go(self, held: HeldRun) -> bool:
        """The runs that make what it reads have gone, and there is room for its puts. A result that was donated to its
        last try is there again only if the run that makes it fails too, which shows when that one ends."""
        puts = 0
        for name in dict.fromkeys(held.reads()):
            buffer = self.buffers[name]
            donated = not self._state.state_of(buffer.sent_name)
            if buffer.maker is not None and (buffer.maker.waits or donated):
                return False
            puts += buffer.contents is not None and not self._there(name)
        return len(self._state.requests) + puts <= self._state.limits.max_requests

    def _submit_again(self, held: HeldRun, now: int) -> bool:
        state, calls = self._state, self._calls
        program = held.program
        if program not in state.programs:  # it was unregistered meanwhile
            if len(state.programs) >= state.limits.max_programs or not calls.room():
                return False
            program = calls.register(held.ir, now)
        for name in held.reads():
            self._put_again(self.buffers[name], now)
        old = [self.sent(name) for name in held.results if name]
        calls.release(tuple([name for name in old if state.state_of(name)]), now)
        keep = tuple([bool(name) for name in held.results])
        args = ranges.folded(self.sent_args(held.args), state.limits.together)
        made = calls.submit(program, state.programs[program], args, keep, held.dispatch, held.deadline, (), 0, now)
        for name, sent_name in zip(held.results, made.results, strict=True):
            if name:
                self._rename(self.buffers[name], sent_name)
        self.trying[made.run] = held
        self._last_tries[held.run] = made.run
        if program != held.program:
            calls.unregister(program, now)
        del self.waiting[held.run]
        held.due = -1
        if held.stopped:
            calls.call(p.StopRun(made.run), now)
        self._unblock()
        return True

    def _put_again(self, buffer: HeldBuffer, now: int) -> None:
        """If it is gone, and can be."""
        if buffer.contents is None or self._there(buffer.name):
            return
        if self._state.state_of(buffer.sent_name):
            self._calls.release((buffer.sent_name,), now)
        self._rename(buffer, self._calls.put(*buffer.contents, now))

    def _ask_again(self, asked: AskedGet, now: int) -> None:
        if self._made_again(asked.buffer):
            return  # when the run that makes it has ended
        if not self._there(asked.buffer):
            self._refuse(asked)
        elif len(self._state.requests) < self._state.limits.max_requests:
            del self.asking[asked.request]
            self._renamed_gets.pop(asked.sent_name, None)
            asked.sent_name = self._calls.get(self.sent(asked.buffer), now, asked.shard)
            self._renamed_gets[asked.sent_name] = asked.request

    def _refuse(self, asked: AskedGet) -> None:
        del self.asking[asked.request]
        self._drop_get(asked)
        assert asked.blame is not None
        self._out.append(p.CallRefused("get", asked.request, asked.blame))

    # --- ends -------------------------------------------------------------------------------------------------

    def _finish(
        self, held: HeldRun, blame: p.Blame | None, now: int, lacks: tuple[tuple[int, str], ...] = (), undone: int = 0
    ) -> None:
        """The run has ended for good."""
        state, buffers = self._state, self.buffers
        runs = held.tries if held.waits else held.tries + 1
        del self._held[held.run]
        self.waiting.pop(held.run, None)
        held.due = -1
        if blame is not None and runs > 1 and infrastructure(blame) and not lacks:
            blame = msgspec.structs.replace(blame, cause=f"{blame.cause}; it was run {runs} times")
        self._out.append(p.RunEnded(held.run, blame, lacks, undone))
        results = [buffers[name] for name in held.results if name]
        if blame is not None:
            spoilt = [each for each in results if state.state_of(each.sent_name) != "ready"]
            for each in spoilt:
                state.settle(each.sent_name, "spoilt")
            if spoilt:
                self._out.append(p.BuffersReady(tuple([each.name for each in spoilt]), blame))
        for buffer in results:
            buffer.maker = None
            self._drop_idle(buffer)
        while len(self._last_tries) > REMEMBERED:
            del self._last_tries[next(iter(self._last_tries))]
        for name in held.reads():
            self._let_go(buffers[name], now)
        self._unblock()

    def _let_go(self, buffer: HeldBuffer, now: int) -> None:
        """One held run less needs it."""
        buffer.readers -= 1
        if buffer.readers:
            return
        if not buffer.hidden:
            self._drop_idle(buffer)
            return
        if self._state.state_of(buffer.sent_name) and self._state.phase in MAY_CALL:
            self._calls.release((buffer.sent_name,), now)
        self._forget(buffer)

    def _forget(self, buffer: HeldBuffer) -> None:
        """Nobody will name it again. If the run that makes it is tried again, it makes it for nobody."""
        if buffer.maker is not None:
            buffer.maker.results = tuple([0 if name == buffer.name else name for name in buffer.maker.results])
        self._renamed.pop(buffer.sent_name, None)
        del self.buffers[buffer.name]
        if buffer.contents is not None:
            self._out.append(p.PutContentsUnneeded((buffer.name,)))

    # --- small things -----------------------------------------------------------------------------------------

    def _buffer(self, name: int) -> HeldBuffer:
        found = self.buffers.get(name)
        if found is None:
            found = self.buffers[name] = HeldBuffer(name, name)
        return found

    def _drop_idle(self, buffer: HeldBuffer) -> None:
        if buffer.idle:
            del self.buffers[buffer.name]

    def _rename(self, buffer: HeldBuffer, sent_name: int) -> None:
        self._renamed.pop(buffer.sent_name, None)
        buffer.sent_name = sent_name
        self._renamed[sent_name] = buffer.name

    def _drop_get(self, asked: AskedGet) -> None:
        del self._gets[asked.request]
        self._renamed_gets.pop(asked.sent_name, None)

    def _made_again(self, name: int) -> bool:
        buffer = self.buffers.get(name)
        return buffer is not None and buffer.maker is not None

    def _there(self, name: int) -> bool:
        return self._state.state_of(self.sent(name)) in ("promised", "ready")

    def _unblock(self) -> None:
        if self._state.blocked:
            self._state.blocked = False
            self._out.append(p.Unblocked())
