"""Checkpoints as gangs: they are launched in order like others, but files are written and read in other threads.

    enqueueing thread   notes the arrays that are to be saved; copies to the devices what has been read
    a thread per gang   waits for the arrays, copies them to host memory, writes, reads; then Finished

The arrays of a save are held until they are copied. Meanwhile a gang that would take over such an array (donation)
takes new memory instead; if there is none, it waits for the copy. Two saves are copied and written at a time; further
ones wait, and hold their arrays. These gangs finish out of order. That is safe: all of them are irregular, so gangs
that read their outputs enter only after they have ended. Neighbours: `launcher`, `store`, `completions`.
"""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from core.model import Gang, Index, Layout, Plan, Sharding, Shards, canonical, shard_bytes, virtual_index
from core.protocol import Blame
from core.protocol import effects as e

from ..checkpoint import (
    ArrayEntry,
    CheckpointError,
    Discarded,
    Document,
    Request,
    chunks,
    documents,
    folders,
    leftovers,
    zarr2,
    zarrs,
)
from ..contents import local_shards, shard_io
from ..devices import Array
from . import device_arrays, jax_errors
from .completions import Completions, Flight
from .store import Store, is_there
from .stored_buffers import StoredBuffer
from .worker_thread import WorkerThread
from .world import WorldMembership

AT_ONCE = 2  # saves that are copied and written; each holds its part of the arrays in host memory
LOOK = 0.002  # seconds between checks whether arrays are ready
LET_GO = 10.0  # seconds to wait for copies when a world ends
MOST = 8192  # documents of plans that are kept
Result = tuple[int, Any]  # what a gang's output tells, and what is kept beside it for as long as it is


class PendingGang:
    """A gang under way. `held`: the buffers of its inputs, until they are copied."""

    __slots__ = ("arrays", "blame", "command", "document", "given_up", "held", "inputs", "outputs", "place")

    def __init__(self, command: e.Launch, gang: Gang, plan: Plan, document: Document) -> None:
        self.command, self.document, self.place = command, document, gang.place
        self.inputs = [plan.slots[slot].layout for slot in gang.inputs]
        self.outputs = [plan.slots[slot].layout for slot in gang.outputs]
        self.arrays: list[Any] = []
        self.held: Counter[int] = Counter()
        self.blame: Blame | None = None
        self.given_up = False


class StopSaving(Exception):
    """The gang was abandoned."""


class Checkpoints:
    """`root`: the folder below which clients may write; None: nowhere. `memory`: bytes of each device; 0: unknown."""

    def __init__(
        self, world: WorldMembership, line: WorkerThread, store: Store, completions: Completions,
        post: Callable[[e.Event], None], *, root: Path | None, memory: int,
    ) -> None:  # fmt: skip
        self._world, self._line, self._store, self._completions = world, line, store, completions
        self._post, self._root, self._memory = post, root, memory
        self._documents: OrderedDict[tuple[int, int], Document] = OrderedDict()  # by (plan, code)
        self._changed = threading.Condition()
        self._jobs: dict[int, PendingGang] = {}  # by seq
        self._held: Counter[int] = Counter()  # by buffer
        self._bytes = 0  # bytes of held buffers on a device
        self._room = threading.BoundedSemaphore(AT_ONCE)

    def __len__(self) -> int:
        return len(self._jobs)

    # --- code -------------------------------------------------------------------------------------------------

    @staticmethod
    def concerns(plan: Plan, code: int, blobs: Mapping[str, bytes]) -> bool:
        return documents.is_document(blobs.get(plan.codes[code].code, b""))

    def compile(self, command: e.CompileCode, plan: Plan, blobs: Mapping[str, bytes]) -> None:
        """Checks the document and compares it with the plan; there is nothing to compile."""
        code = plan.codes[command.code]
        gang = plan.steps[code.step]
        assert isinstance(gang, Gang)
        blame: Blame | None = None
        try:
            document = documents.decode(blobs[code.code])
            inputs, outputs = ([plan.slots[slot].layout for slot in slots] for slots in (gang.inputs, gang.outputs))
            documents.fits(document, inputs, outputs)
            if gang.irregular == (document.kind == "load") or gang.donated:
                raise CheckpointError(f"a checkpoint's {document.kind!r} is not called as the plan must call it")
            self._documents[plan.id, command.code] = document
            while len(self._documents) > MOST:
                self._documents.popitem(last=False)
        except Exception as error:
            blame = Blame("code", jax_errors.text_of(error))
        self._post(e.CodeReady(command.plan, command.code, blame))

    def has(self, plan: int, code: int) -> bool:
        return (plan, code) in self._documents

    def forget(self, plan: int) -> None:
        for key in [key for key in self._documents if key[0] == plan]:
            del self._documents[key]

    # --- in the enqueueing thread -------------------------------------------------------------------------------

    def launch(self, command: e.Launch, plan: Plan, gang: Gang) -> None:
        job = PendingGang(command, gang, plan, self._documents[plan.id, gang.computation])
        found = [self._store.get(buffer) for buffer in command.inputs]
        job.blame = _missing(command, gang, found)
        if job.document.kind == "load":
            self._load(job, found)
            return
        for buffer, layout in zip(command.outputs, job.outputs, strict=True):
            self._store.room(buffer, layout)
        with self._changed:
            if self._completions.given_up(command.seq):
                return
            self._jobs[command.seq] = job
            if job.blame is None:
                self._hold(job, [each for each in found if each is not None])
        threading.Thread(target=self._run, args=(job,), name=f"checkpoint {command.seq}", daemon=True).start()

    def may_take(self, seq: int, buffers: Iterable[int]) -> bool:
        """Whether a gang may take over these buffers. A buffer that is being saved may not be taken: the gang gets
        new memory instead. If there is none, this waits until the buffer is copied; its makers were launched before."""
        if not self._held:
            return True
        mine = list(buffers)
        with self._changed:
            if not any(buffer in self._held for buffer in mine):
                return True
            full = self._memory and max(self._store.bytes.values(), default=0) + self._bytes > self._memory
            while full and any(buffer in self._held for buffer in mine):
                if self._completions.given_up(seq):
                    return False
                self._changed.wait(LOOK * 10)
            return bool(full)

    def _load(self, job: PendingGang, found: Sequence[StoredBuffer | None]) -> None:
        """Copies the contents that were read, which are kept with the token, to the devices."""
        command, token = job.command, found[0]
        made: list[Any] = []
        blame = job.blame
        shelf = [] if token is None or token.beside is None else token.beside
        try:
            if blame is None:
                made = self._placed(job, shelf)
        except Exception as error:
            blame = jax_errors.of(error)
        if token is not None:
            token.beside = None
        whys = blame.cause if blame is not None else ""
        kept = []
        for number, (buffer, layout) in enumerate(zip(command.outputs, job.outputs, strict=True)):
            kept.append(self._store.made(buffer, layout, made[number] if blame is None else None))
            kept[-1].reason = whys
        if blame is not None:
            self._completions.failed(command.seq, blame)
            return
        flight = Flight(command.seq, PendingArrays(made), kept, multi=False, together=False, name="load")
        self._completions.add(flight)

    def _placed(self, job: PendingGang, shelf: Sequence[tuple[Layout, Mapping[Index, Array]]]) -> list[Any]:
        wanted = [canonical(layout) for layout in job.outputs]
        if wanted != [canonical(layout) for layout, _ in shelf]:
            raise CheckpointError("what was read of the checkpoint is not on this host, or has another layout")
        pairs = zip(job.outputs, shelf, strict=True)
        return [device_arrays.to_devices(self._world, layout, shards) for layout, (_, shards) in pairs]

    def _end(self, job: PendingGang, result: Result) -> None:
        """Stores a gang's result, and then posts its end."""
        blame = job.blame
        if blame is None and not job.given_up:
            try:
                self._fill(job, result)
            except Exception as error:
                blame = jax_errors.of(error)
        if blame is not None:
            for buffer in job.command.outputs:
                self._store.spoil(buffer, blame.cause)
        sizes = tuple(Shards(layout).size[0] for layout in job.outputs) if blame is None else ()
        with self._changed:
            if self._jobs.pop(job.command.seq, None) is not None:
                self._post(e.Finished(job.command.seq, blame, sizes))

    def _fill(self, job: PendingGang, result: Result) -> None:
        """Fills the outputs. `result`: a number; and what stays beside it for as long as the output does."""
        number, beside = result
        for buffer, layout in zip(job.command.outputs, job.outputs, strict=True):
            shards = {
                index: np.full(Shards(layout).size, number, np.int32)
                for index in device_arrays.own_shards(self._world, layout)
            }
            self._store.fill(buffer, layout, shards)
            held = self._store.get(buffer)
            if held is not None:
                held.beside = beside

    # --- any thread -------------------------------------------------------------------------------------------

    def abandon(self, seqs: Iterable[int]) -> None:
        with self._changed:
            for seq in seqs:
                job = self._jobs.pop(seq, None)
                if job is not None:
                    job.given_up = True

    def leave(self) -> list[Any]:
        """Prepares for the end of the world, and with it of all arrays on devices: what is not copied by now is
        not saved. Returns the arrays that are stuck."""
        with self._changed:
            for job in self._jobs.values():
                if job.arrays:
                    job.given_up = True
                    job.blame = job.blame or Blame("lost", "its world ended before it was saved")
            self._changed.wait_for(lambda: not self._held, LET_GO)
            return [PendingArrays(job.arrays) for job in self._jobs.values() if job.held]

    # --- a thread of its own ------------------------------------------------------------------------------------

    def _run(self, job: PendingGang) -> None:
        result: Result = 0, None
        try:
            if job.blame is None:
                result = self._carry_out(job)
        except StopSaving:
            pass
        except Discarded as error:
            job.blame = job.blame or Blame("discarded", f"{error}; its files were removed while they were written")
        except CheckpointError as error:
            job.blame = job.blame or Blame("checkpoint", str(error))
        except Exception as error:
            job.blame = job.blame or jax_errors.of(error)
        finally:
            self._release(job)
        self._line.do(self._end, job, result)

    def _carry_out(self, job: PendingGang) -> Result:
        self._wait(job)
        request = documents.request_of(
            next(iter(device_arrays.to_host(self._world, job.inputs[0], job.arrays[0]).values()))
        )
        if request.within:
            folders.below(Path(request.within), request.folder, "--persist of the door")
        folder = folders.below(self._root, request.folder)
        kind, entries = job.document.kind, job.document.entries
        if kind == "save":
            with self._room:
                return 0, self._save(job, folder, request)
        if kind == "export":
            with self._room:
                zarrs.crc32c()  # before anything is copied
                pieces = self._pieces(job)
                self._release(job)
                wanted_still = zarr2.while_wanted(pieces, lambda: job.given_up, request.seconds)
                zarr2.write(folder, request.nonce, entries, wanted_still, host=min(self._virtual(job)))
            return 0, None
        self._release(job)
        if kind == "commit":
            if self._leads(job) and not folders.saved_already(folder, request):
                zarrs.finish(folders.partial(folder, request), request, entries)
                folders.complete(folder, request)
            return request.step, None
        if kind == "seal":
            if self._leads(job):
                zarr2.seal(folder, request.nonce, entries)
            return 0, None
        if kind == "import":
            layouts, wanted = self._wanted(job)
            return 0, list(zip(layouts, zarr2.read(folder, wanted), strict=True))
        if kind == "read":
            step = folders.below(self._root, str(folders.found(folder, request.step)))  # it may be a link
            layouts, wanted = self._wanted(job)
            return 0, list(zip(layouts, zarrs.read(step, wanted), strict=True))
        last = folders.latest(folder)
        return 0 if last is None else last + 1, None

    def _save(self, job: PendingGang, folder: Path, request: Request) -> leftovers.Mark | None:
        """Returns what says that this save is alive: its token has it until the run is over."""
        if folders.saved_already(folder, request):
            return None
        zarrs.crc32c()  # before anything is copied
        pieces = self._pieces(job)
        self._release(job)
        partial = folders.partial(folder, request)
        try:
            mark = leftovers.begin(partial)
            leftovers.tidy(folder, mark.now)
            zarrs.write(partial, job.document.entries, pieces, first=self._leads(job))
        except BaseException:
            folders.discard(folder, request)
            raise
        return mark

    def _pieces(self, job: PendingGang) -> list[zarrs.Piece]:
        """Our part of the arrays, in host memory."""
        found: list[zarrs.Piece] = []
        for number, entry in enumerate(job.document.entries):
            layout, array = job.inputs[number + 1], job.arrays[number + 1]
            by_device = {self._world.number_of(part.device): part.data for part in array.addressable_shards}
            holder = {index: mine[0] for index, mine in device_arrays.own_shards(self._world, layout).items()}
            seen: dict[Index, Array] = {}
            for shard, inside, whole in chunks.ours(layout, entry.chunk, number, self._virtual(job)):
                if job.given_up:
                    raise StopSaving
                if shard not in seen:
                    seen[shard] = _on_host(by_device[holder[shard]], layout)
                # `np.asarray` may share memory with CPU devices; from other devices it is a copy.
                lends = by_device[holder[shard]].devices().pop().platform == "cpu"
                part = seen[shard][inside]
                found.append((number, whole, np.array(part) if lends else part))
        return found

    def _wanted(self, job: PendingGang) -> tuple[list[Layout], list[tuple[ArrayEntry, dict[Index, chunks.Box]]]]:
        """The layouts of the arrays that are to be read, and where our shards lie in them."""
        layouts = [
            Layout(entry.shape, entry.dtype, job.place, entry.mesh or job.document.mesh, Sharding(entry.split))
            for entry in job.document.entries
        ]
        wanted: list[tuple[ArrayEntry, dict[Index, chunks.Box]]] = []
        for entry, layout in zip(job.document.entries, layouts, strict=True):
            shards = Shards(layout)
            mine = local_shards(layout, self._world.mine)
            wanted.append((entry, {index: shard_io.box_of(shards, index)[:-1] for index in mine}))
        return layouts, wanted

    # --- inside -------------------------------------------------------------------------------------------------

    def _virtual(self, job: PendingGang) -> list[int]:
        return [virtual_index(job.place, device) for device in self._world.here(job.place)]

    def _leads(self, job: PendingGang) -> bool:
        """Whether this host does what only one of all hosts does."""
        return 0 in self._virtual(job)

    def _hold(self, job: PendingGang, found: Sequence[StoredBuffer]) -> None:
        job.arrays = [each.array for each in found]
        job.held.update(job.command.inputs)
        self._held.update(job.held)
        self._bytes += sum(each.nbytes for each in found)

    def _release(self, job: PendingGang) -> None:
        """Ends the hold on the arrays: a gang may take them over."""
        with self._changed:
            self._held -= job.held
            job.held.clear()
            if job.arrays:
                self._bytes -= sum(map(shard_bytes, job.inputs))
                job.arrays = []
            self._changed.notify_all()

    def _wait(self, job: PendingGang) -> None:
        """Waits until the arrays are ready. It polls, so that the gang can be abandoned."""
        for array in job.arrays:
            while not is_there(array):
                if job.given_up:
                    raise StopSaving
                time.sleep(LOOK)
            array.block_until_ready()  # raises its maker's error


class PendingArrays:
    """Several arrays as one token, for which a flight waits."""

    def __init__(self, those: Sequence[Any]) -> None:
        self._those = those

    def is_ready(self) -> bool:
        return all(map(is_there, self._those))

    def block_until_ready(self) -> None:
        for each in self._those:
            each.block_until_ready()


def _missing(command: e.Launch, gang: Gang, found: Sequence[StoredBuffer | None]) -> Blame | None:
    if command.placeholders:
        return Blame("lost", f"{gang.name!r} reads a buffer that was not made")
    for number, held in enumerate(found):
        if held is None or not held.on_devices:
            why = held.reason if held is not None else ""
            return Blame("lost", why or f"input {number} of {gang.name!r} is not on this host")
    return None


def _on_host(part: Any, layout: Layout) -> Array:
    if layout.dtype != device_arrays.KEYS:
        return np.asarray(part)
    return np.ascontiguousarray(np.asarray(jax.random.key_data(part))).view(np.uint64)[..., 0]
