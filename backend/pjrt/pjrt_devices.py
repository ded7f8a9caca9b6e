"""A host's real devices, through JAX: CPU, GPU and TPU by the same code.

    node --commands-->          enqueueing thread   launcher, store, world: all that has an order; it also reads the
                                                    controller's stream while it has nothing to do
                                compiling threads   code, one at a time
                                waiting thread      completions: Finished
                                copying thread      spills, counts of rows
                                others              checkpoints

Every method returns at once; the enqueueing thread works in the order of core's commands.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from core.model import Gang, Hosts, Layout, Plan
from core.protocol import Blame
from core.protocol import effects as e

from ..checkpoint import CheckpointError
from ..contents import CALLBACK_S, callbacks
from ..coordination import Overtaken
from ..devices import Array, DeviceAbout, GangTimes, Index, Post, WorldSpec
from ..streams import LentReading
from . import device_arrays, disk, jax_errors, rows
from .checkpoints import Checkpoints
from .code import AskClient, Codes, CompileJob, CompileThreads
from .completions import Completions
from .disk import DiskShards, SpillFolder
from .launcher import Launcher
from .store import MissingBuffer, Store, ready
from .worker_thread import WorkerThread
from .world import NotJoined, WorldMembership

OVERTAKEN_S = 5.0  # seconds to stop joining a world that is over, before the process restarts


class PjrtDevices:
    """`memory`: bytes of each device that programs may use; 0: what the platform reports, if it does. `cache`: a
    folder for compiled code. `checkpoints`: a folder below which clients may save; None: they may not. `spill`: one
    on a local disk, for arrays for which there is no memory; None: the usual one. `patience`: seconds for which
    programs wait for functions of their clients. The environment (XLA_FLAGS, JAX_PLATFORMS) determines the devices."""

    def __init__(
        self, *, memory: int = 0, cache: Path | None = None, checkpoints: Path | None = None,
        spill: Path | None = None, patience: float = CALLBACK_S,
    ) -> None:  # fmt: skip
        self.post: Post = lambda event: None
        self.failed: Callable[[BaseException], None] = lambda error: None
        self.hosts: Hosts | None = None  # the cluster's hosts: rows of a sparse exchange go to them
        # Code that was traced elsewhere keeps its types, also those of 64 bits.
        jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
        self._world = WorldMembership()
        self._about = self._world.about(memory)
        self._line = WorkerThread("enqueue", self._fail)
        self._compiling, self._copying = CompileThreads(self._fail), WorkerThread("copy", self._fail)
        self._store, self._disk = Store(self._world, self._line), SpillFolder(spill, self._copying.do)
        self._copying.do(self._disk.tidy)
        self.ask: Callable[[str, bytes, Callable[[bytes], None]], None] = _unanswered
        asks: Callable[[str], AskClient] = lambda key: lambda body, came: self.ask(key, body, came)  # noqa: E731
        self._codes = Codes(self._world, self._say, self._about.memory, cache, asks, patience)
        self.stamps = GangTimes()
        self._completions = Completions(
            self._say, lambda buffer, rows: self._line.do(self._store.pack, buffer, rows), self.stamps
        )
        self._checkpoints = Checkpoints(
            self._world, self._line, self._store, self._completions, self._say, root=checkpoints,
            memory=self._about.memory,
        )  # fmt: skip
        self._launcher = Launcher(self._store, self._codes, self._completions, self._checkpoints, self._say)

    def _say(self, event: e.Event) -> None:
        self.post(event)

    def _fail(self, error: BaseException) -> None:
        self.failed(error)

    def about(self) -> DeviceAbout:
        return self._about

    def reads(self, lent: LentReading, between: Callable[[], float | None]) -> int | None:
        self._line.reads(lent, between)
        return self._line.ident

    def close(self) -> None:
        """Ends threads. What is enqueued runs to its end, without a report."""
        self.post = lambda event: None
        self._completions.end()
        for line in (self._line, self._compiling, self._copying):
            line.end(1.0)
        self._disk.close()

    # --- gangs ------------------------------------------------------------------------------------------------

    def compile(self, command: e.CompileCode, plan: Plan, blobs: Mapping[str, bytes]) -> None:
        def dropped() -> None:
            self._say(e.CodeReady(command.plan, command.code, Blame("code", "nobody wants it any more")))

        if self._checkpoints.concerns(plan, command.code, blobs):
            job = CompileJob(plan.id, lambda wanted: self._checkpoints.compile(command, plan, blobs), dropped)
        else:
            drop = dropped if self._compiles_alone(plan, command.code) else None
            job = CompileJob(plan.id, partial(self._codes.compile, command, plan, blobs), drop)
        self._compiling.do(job)

    def _compiles_alone(self, plan: Plan, code: int) -> bool:
        """Whether no other host waits for this one to compile the code, too: see `stablehlo_codes.cacheable`."""
        gang = plan.steps[plan.codes[code].step]
        assert isinstance(gang, Gang)
        return self._about.platform == "cpu" or set(gang.place.devices()) <= set(self._world.mine)

    def forget(self, plan: int) -> None:
        self._compiling.forget(plan)
        self._line.do(self._codes.forget, plan)  # behind what was enqueued before
        self._line.do(self._checkpoints.forget, plan)

    def launch(self, command: e.Launch, plan: Plan) -> None:
        self._line.do(self._launcher.launch, command, plan)

    def abandon(self, seqs: Sequence[int]) -> None:
        """At once, since the enqueueing thread may wait for room that only this makes; and once more in order."""
        self._completions.abandon(seqs)
        self._checkpoints.abandon(seqs)
        self._line.do(self._launcher.abandon, tuple(seqs))

    def cut(self, seq: int) -> None:
        """Does nothing: what XLA has begun goes on to its end."""

    # --- buffers ------------------------------------------------------------------------------------------------

    def make(self, command: e.MakeBuffer) -> None:
        if command.literal is None:
            self._line.do(self._store.room, command.buffer, command.layout)
        else:
            self._line.do(self._literal, command)

    def view(self, command: e.MakeView) -> None:
        self._line.do(self._store.view, command.buffer, command.layout, command.shards)

    def free(self, first: int, count: int) -> None:
        self._line.do(self._store.free, first, count)

    def shards(self, buffer: int) -> Mapping[Index, Array]:
        return self._store.shards(buffer)

    def at_hand(self, buffer: int) -> bool:
        return self._store.at_hand(buffer, here=self._about.platform == "cpu")

    def fill(self, buffer: int, layout: Layout, shards: Mapping[Index, Array]) -> None:
        self._store.came(buffer, shards)
        self._line.do(self._store.fill, buffer, layout, shards)

    def spoil(self, buffer: int, reason: str) -> None:
        self._line.do(self._store.spoil, buffer, reason)

    def spill(self, command: e.SpillBuffer) -> None:
        self._line.do(self._spill, command)

    def restore(self, command: e.RestoreBuffer) -> None:
        self._line.do(self._restore, command)

    def count(self, command: e.CountRows) -> None:
        self._line.do(self._copying.do, self._count, command)

    # --- in the enqueueing thread ---------------------------------------------------------------------------------

    def _literal(self, command: e.MakeBuffer) -> None:
        assert command.literal is not None
        try:
            self._store.literal(command.buffer, command.layout, command.literal)
        except Exception as error:
            self._store.room(command.buffer, command.layout)
            self._store.spoil(command.buffer, jax_errors.text_of(error))

    def _spill(self, command: e.SpillBuffer) -> None:
        try:
            buffer, array = self._store.spill(command.buffer)
        except MissingBuffer as gone:
            self._say(e.Copied(command.seq, Blame("lost", str(gone))))
            return
        self._copying.do(self._spill_out, command, buffer.layout, array)

    def _restore(self, command: e.RestoreBuffer, read: Mapping[Index, Array] | None = None) -> None:
        try:
            shards = read or self._store.spilled_shards(command.buffer)
            if isinstance(shards, DiskShards):
                self._copying.do(self._read_back, command, shards)
                return
            array = self._store.restore(command.buffer, shards)
        except Exception as error:
            self._say(e.Copied(command.seq, jax_errors.of(error)))
            return
        self._copying.do(self._restored, command, array)

    def reform(self, command: e.Reform, world: WorldSpec) -> None:
        self._completions.abandon(command.abandon)
        self._checkpoints.abandon(command.abandon)
        self._world.want(command.epoch)
        if self._world.joining is not None:
            overtaken = threading.Timer(OVERTAKEN_S, self._still_joins, (self._world.joining,))
            overtaken.daemon = True
            overtaken.start()
        self._line.do(self._reform, command, world)

    def _still_joins(self, world: WorldSpec) -> None:
        """Reports an error if JAX still waits to join a world that is over: nothing can end that wait."""
        if self._world.joining is world:
            self._fail(
                RuntimeError(f"the world of epoch {world.epoch} is over, but this process still waits to join it")
            )

    def _reform(self, command: e.Reform, world: WorldSpec) -> None:
        try:
            with self._world.lock:
                if self._world.same_backend(world):
                    self._world.join(world)
                else:
                    self._change(world)
        except Overtaken:
            return
        except NotJoined as error:
            self._say(e.Reformed(command.epoch, Blame("world", f"it could not join the world: {error}")))
            return
        self._launcher.abandon(command.abandon)
        self._say(e.Reformed(command.epoch))

    def _change(self, world: WorldSpec) -> None:
        """Changes to another world, and keeps all arrays that still exist."""
        stuck = self._completions.clear() + self._checkpoints.leave()
        self._store.to_host()
        self._codes.void()
        self._world.leave(stuck)
        self._world.join(world)
        self._store.to_devices()

    # --- in the copying thread --------------------------------------------------------------------------------------

    def _spill_out(self, command: e.SpillBuffer, layout: Layout, array: Any) -> None:
        blame, no_disk = None, ""
        try:
            shards: Mapping[Index, Array] | None = None
            if command.to_disk:
                try:
                    shards = self._disk.write(device_arrays.to_host(self._world, layout, array), layout.dtype)
                except (OSError, CheckpointError) as error:
                    no_disk = disk.why(self._disk.below, error)
            if shards is None:
                shards = device_arrays.to_host(self._world, layout, array, copies=True)
            del array
            self._line.ask(self._store.spilled_to, command.buffer, shards)
        except Exception as error:
            blame = jax_errors.of(error)
        self._say(e.Copied(command.seq, blame, no_disk))

    def _read_back(self, command: e.RestoreBuffer, shards: DiskShards) -> None:
        try:
            read = dict(shards)
        except Exception as error:
            self._say(e.Copied(command.seq, Blame("lost", str(error))))
            return
        self._line.do(self._restore, command, read)

    def _restored(self, command: e.RestoreBuffer, array: Any) -> None:
        blame = None
        try:
            ready(array)
        except Exception as error:
            blame = jax_errors.of(error)
        self._say(e.Copied(command.seq, blame))

    def _count(self, command: e.CountRows) -> None:
        pieces: tuple[rows.Piece, ...] = ()
        blame = None
        try:
            if command.source is None or self.hosts is None:
                raise RuntimeError("this host does not know the layout of the rows, or the cluster's hosts")
            held = self._store.shards(command.buffer)
            pieces = rows.counted(command.source, command.target, held, self._world.mine, self.hosts)
        except Exception as error:
            blame = jax_errors.of(error)
        self._say(e.RowsCounted(command.transfer, pieces, blame))


def _unanswered(key: str, body: bytes, came: Callable[[bytes], None]) -> None:
    came(callbacks.failed("nobody answers this program's calls into Python"))
