"""Devices that take the time they are told, to run the real control plane with hundreds of hosts on one machine.

A gang takes `cost` nanoseconds on each of its devices, in the order of the launches, and waits for no peer: one that is
cut ends on each host with the step that is under way there. Contents are zeros of the right size. JAX is not used.
Neighbours: `agent`; `interface`. `Alarms` are for all of them, because a loop's timers are up to a millisecond late.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count

import msgspec
import numpy as np

from core.model import Gang, GangSteps, Hosts, Layout, Plan, Shards, device_spans, spans, virtual_index
from core.protocol import Blame
from core.protocol import effects as e

from ..streams import LentReading
from .gang_times import GangTimes
from .interface import Array, DeviceAbout, Index, Post, WorldSpec


class Alarms:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._users = 0
        self._thread: threading.Thread | None = None

    def enter(self) -> None:
        with self._changed:
            self._users += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="alarms", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        """Ends one use; the last one ends the thread."""
        with self._changed:
            self._users -= 1
            if not self._users:
                self._heap.clear()
                self._thread = None
                self._changed.notify()

    def at(self, when: int, call: Callable[[], object]) -> None:
        """Calls `call` at `when`, by time.monotonic_ns(), in the thread of the alarms; it must be short."""
        with self._changed:
            number = next(self._numbers)
            heappush(self._heap, (when, number, call))
            if self._heap[0][1] == number:
                self._changed.notify()

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                while self._thread is me and (wait := self._wait()) != 0:
                    self._changed.wait(wait)
                if self._thread is not me:
                    return
                *_, call = heappop(self._heap)
            call()

    def _wait(self) -> float | None:
        """Seconds until the first call is due; None: there is none."""
        return max(0.0, (self._heap[0][0] - time.monotonic_ns()) / 1e9) if self._heap else None


ALARMS = Alarms()


class TimedGang(msgspec.Struct, eq=False):
    """A gang that has been launched and is not over. Its times are those of the alarms' clock."""

    seq: int
    run: int
    gang: Gang
    devices: list[int]
    launched: int
    enqueued: int  # by the host's clock
    sizes: tuple[int, ...]
    steps: GangSteps
    ends: int = -1


class TimedDevices:
    def __init__(self, devices: int, memory: int = 0) -> None:
        self.post: Post = lambda event: None
        self.hosts: Hosts | None = None
        self.failed: Callable[[BaseException], None] = lambda error: None
        self.stamps = GangTimes()
        self.ask: Callable[[str, bytes, Callable[[bytes], None]], None] = lambda key, body, came: None
        self._count, self._memory = devices, memory
        self._loop = asyncio.get_running_loop()
        self._mine: Sequence[int] = ()
        self._free: dict[int, int] = {}  # device -> when it is free
        self._layouts: dict[int, Layout] = {}
        self._under_way: dict[int, TimedGang] = {}  # by seq, in the order of the launches
        self._closed = False
        self.gangs = 0
        ALARMS.enter()

    def about(self) -> DeviceAbout:
        return DeviceAbout("timed", "timed", self._count, self._memory)

    def reads(self, lent: LentReading, between: Callable[[], float | None]) -> None:
        """No thread enqueues here."""

    def reform(self, command: e.Reform, world: WorldSpec) -> None:
        self._mine = world.devices[world.me]
        self._free = dict.fromkeys(self._mine, 0)
        self.abandon(command.abandon)
        self._loop.call_soon(self.post, e.Reformed(command.epoch))

    def compile(self, command: e.CompileCode, plan: Plan, blobs: Mapping[str, bytes]) -> None:
        self._loop.call_soon(self.post, e.CodeReady(command.plan, command.code))

    def forget(self, plan: int) -> None:
        """Nothing: codes do not wait for each other here."""

    def launch(self, command: e.Launch, plan: Plan) -> None:
        gang = plan.steps[command.step]
        assert isinstance(gang, Gang)
        now, enqueued = time.monotonic_ns(), self.stamps.now()
        ours = [device for device in self._mine if spans.contains(device_spans(gang.place), device)]
        for buffer in command.donated:
            self._layouts.pop(buffer, None)
        for slot, buffer in zip(gang.outputs, command.outputs, strict=True):
            self._layouts[buffer] = plan.slots[slot].layout
        self.gangs += 1
        looks = [plan.slots[slot].layout for slot in gang.outputs]
        sizes = tuple(Shards(look).size[0] for look in looks if look.shape) if gang.irregular else ()
        steps = GangSteps(gang.steps)
        made = TimedGang(command.seq, command.run, gang, ours, now, enqueued, sizes, steps)
        self._under_way[command.seq] = made
        self._time(made, now)

    def _time(self, one: TimedGang, now: int) -> None:
        """Sets when it begins, unless it has begun, and when it ends."""
        begins = one.steps.begun
        if not 0 <= begins <= now:
            begins = max([one.launched, *(self._free[device] for device in one.devices)])
        ends = begins + one.steps.begin(begins, one.gang.cost // one.gang.steps)
        for device in one.devices:
            self._free[device] = ends
        if ends != one.ends:
            one.ends = ends
            ALARMS.at(ends, partial(self._over, one, ends))

    def _over(self, one: TimedGang, at: int) -> None:
        """Ends a gang, in the thread of the alarms. An irregular one reports as many rows as its outputs hold."""
        if one.ends != at or self._under_way.pop(one.seq, None) is None:
            return  # the gang was cut, or abandoned
        try:
            self.stamps.took(one.seq, one.run, one.enqueued, self.stamps.now(), one.gang.collective)
            self.post(e.Finished(one.seq, None, (one.steps.undone,) if one.gang.steps > 1 else one.sizes))
        except Exception as error:  # all hosts of this process share this thread: the others go on
            self.failed(error)

    def abandon(self, seqs: Sequence[int]) -> None:
        for seq in seqs:
            self._under_way.pop(seq, None)

    def cut(self, seq: int) -> None:
        """What was launched behind it begins sooner."""
        one, now = self._under_way.get(seq), time.monotonic_ns()
        if one is not None:
            one.steps.cut(now)
            self._free = dict.fromkeys(self._free, 0)
            for each in list(self._under_way.values()):
                self._time(each, now)

    # --- buffers: layouts without contents --------------------------------------------------------------------

    def make(self, command: e.MakeBuffer) -> None:
        self._layouts[command.buffer] = command.layout

    def view(self, command: e.MakeView) -> None:
        self._layouts[command.buffer] = command.layout

    def free(self, first: int, count: int) -> None:
        for buffer in range(first, first + count):
            self._layouts.pop(buffer, None)

    def spill(self, command: e.SpillBuffer) -> None:
        self._loop.call_soon(self.post, e.Copied(command.seq))

    def restore(self, command: e.RestoreBuffer) -> None:
        self._loop.call_soon(self.post, e.Copied(command.seq))

    def count(self, command: e.CountRows) -> None:
        blame = Blame("unsupported", "timed devices have no contents, so it is unknown which rows go where")
        self._loop.call_soon(self.post, e.RowsCounted(command.transfer, (), blame))

    def shards(self, buffer: int) -> Mapping[Index, Array]:
        layout = self._layouts[buffer]
        shards = Shards(layout)
        here = [virtual_index(layout.place, device) for device in self._mine]
        return {
            shards.shard_of(virtual): np.zeros(shards.size, np.dtype(layout.dtype)) for virtual in here if virtual >= 0
        }

    def at_hand(self, buffer: int) -> bool:
        return buffer in self._layouts

    def fill(self, buffer: int, layout: Layout, shards: Mapping[Index, Array]) -> None:
        pass

    def spoil(self, buffer: int, reason: str) -> None:
        pass

    def close(self) -> None:
        self._under_way.clear()
        if not self._closed:
            self._closed = True
            ALARMS.leave()
