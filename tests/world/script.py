"""A client of the world, for tests: it makes the calls of a user's program, one in each line.

The oracle computes the digest that each buffer should have from the client's own calls. The contents that a `get`
brings are compared with that.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from core.client.client import Client
from core.client.client_limits import Blocked, Limits
from core.link.endpoint import for_client
from core.model import ranges
from core.model.plan import Layout
from core.model.program import Node, Out, Program, Ref, Sharding, SliceSpec, Value
from core.protocol import dataplane
from core.protocol import effects as e
from core.protocol import messages as m
from tests.invariants import observations as o

from . import contents, oracle
from .actors import Actor, Recorder
from .filling import Content

if TYPE_CHECKING:
    from .world import World


class Handle:
    """A buffer as the client knows it: the digest that it should have, and its state. `shards`: how many distinct ones
    there are, as far as is known here."""

    def __init__(self, name: int, digest: int, shards: int = 1) -> None:
        self.name = name
        self.digest = digest
        self.shards = shards
        self.ready = False
        self.was_ready = False
        self.blame: m.Blame | None = None
        self.is_put = False
        self.is_view = False
        self.released = False


class RunHandle:
    def __init__(self, name: int, program: Program, results: list[Handle]) -> None:
        self.name = name
        self.program = program
        self.results = results
        self.blame: m.Blame | None = None
        self.ended_at = -1
        self.ends = 0
        self.undone = 0

    @property
    def ended(self) -> bool:
        return self.ends > 0

    @property
    def good(self) -> bool:
        return self.ended and self.blame is None


class Fetch:
    """A get: the digest that it brought, if all shards that it wanted have come, and whether it is the right one.
    `shard`: the only one that it wants; -1: all."""

    def __init__(self, request: int, handle: Handle, shard: int = -1) -> None:
        self.request = request
        self.handle = handle
        self.shard = shard
        self.over = False
        self.blame: m.Blame | None = None
        self.digest: int | None = None
        self._layout: Layout | None = None
        self._wanted: dict[tuple[int, int], int] = {}
        self._got: dict[tuple[int, int], int] = {}
        self._contents: dict[int, None] = {}

    @property
    def right(self) -> bool:
        return self.over and self.blame is None and self.digest == self.handle.digest

    def opened(self, layout: Layout, pieces: tuple[tuple[int, int, int], ...]) -> None:
        self._layout = layout
        self._wanted = {(sender, piece): nbytes for sender, piece, nbytes in pieces}

    def fill(self, chunk: dataplane.Chunk, content: Content) -> None:
        key = (chunk.sender, chunk.piece)
        self._got[key] = self._got.get(key, 0) + chunk.nbytes
        self._contents[content[0]] = None

    def end(self, blame: m.Blame | None) -> None:
        self.over, self.blame = True, blame
        if blame is None and self._layout is not None:
            shards = sorted(piece for _, piece in self._wanted)
            asked = list(contents.shards(self._layout)) if self.shard < 0 else [self.shard]
            whole = self._got == self._wanted and shards == asked
            self.digest = contents.one_of(self._contents, "get") if whole else contents.torn("get")


class ClientActor(Actor):
    def __init__(self, world: World, name: str, index: int, script: Script) -> None:
        super().__init__(world, f"client {name}")
        self.index = index
        self.number = 0
        self.script = script
        self.sources: dict[int, Handle] = {}  # transfer -> the buffer that it puts

    def die(self) -> None:
        """End the client's process. Transfers to it end, too."""
        for transfer in self.script.transfers:
            self.world.plane.see(o.TransferOver(transfer, -self.number, m.Blame("client-lost", "it died")))
        self.script.transfers.clear()
        super().die()

    def told(self, event: Any) -> None:
        self.world.plane.heard(-self.number, event)

    def says(self, send: e.Send) -> None:
        said = send.message
        self.world.plane.said(said)
        if isinstance(said, dataplane.Chunk):
            self.world.plane.load(said, (self.sources[said.transfer].digest, None))

    def perform(self, effect: e.Command) -> None:  # noqa: C901 - a table
        script, plane = self.script, self.world.plane
        match effect:
            case e.RunEnded():
                script.run_ended(effect)
            case e.BuffersReady(buffers=buffers, blame=blame):
                for name in ranges.each(buffers):
                    script.buffers[name].ready = blame is None
                    script.buffers[name].was_ready |= blame is None
                    script.buffers[name].blame = blame
            case e.CallRefused():
                script.refused(effect)
            case e.ProgramTold():
                script.program_told(effect)
            case e.GetStarted(request=request, layout=layout):
                script.coming[request] = layout
            case e.OpenRecv(transfer=transfer, buffers=(request,), pieces=pieces):
                script.fetches[request].opened(script.coming.pop(request), pieces)
                script.transfers[transfer] = request
                plane.see(o.TransferOpened(transfer, -self.number, pieces))
            case e.Fill(chunk=chunk):
                plane.arrived(chunk)
                script.fetches[script.transfers[chunk.transfer]].fill(chunk, plane.unload(chunk))
            case e.Received(transfer=transfer, blame=blame):
                plane.see(o.TransferOver(transfer, -self.number, blame))
                script.fetched(script.transfers.pop(transfer), blame)
            case e.LogLine(text=text):
                script.told.append(text)
            case e.OpenSend(transfer=transfer, buffers=(name,)):
                self.sources[transfer] = script.buffers[name]
            case e.SliceSized(name=name, slice=spec):
                script.sized(name, spec)
            case e.SlicesRelocated(request=request):
                del script.relocating[request]
            case e.Sent() | e.DropTransfer() | e.PutStarted() | e.Unblocked():
                pass
            case _:
                super().perform(effect)


class Script:
    """A client with its calls. `told` are the texts that the client machine gave its user."""

    def __init__(self, world: World, name: str, weight: int, priority: int, limits: Limits) -> None:
        self.world = world
        self.name = name
        self.actor = ClientActor(world, name, len(world.clients), self)
        self.runs: dict[int, RunHandle] = {}
        self.buffers: dict[int, Handle] = {}
        self.views: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = {}  # digest, those of its shards
        self.fetches: dict[int, Fetch] = {}
        self.coming: dict[int, Layout] = {}  # gets that have been answered
        self.transfers: dict[int, int] = {}  # transfer -> request
        self.relocating: dict[int, None] = {}  # requests that have not been answered
        self.sizes: dict[str, list[SliceSpec]] = {}  # elastic slices, and what each has been so far
        self.moves_on = -1
        self._sized: dict[int, str] = {}  # requests for elastic slices
        self._there: dict[str, Handle] = {}  # what it has put on each of those
        self.told: list[str] = []
        self.refusals: list[e.CallRefused] = []
        self.awaited: dict[int, None] = {}  # programs that were registered with `tell`
        self.heard: dict[int, e.ProgramTold] = {}  # what was told of them
        self._programs: list[tuple[Program, int]] = []
        self._makers: dict[int, RunHandle] = {}  # of results, by name: the runs that have ended
        limits = msgspec.structs.replace(limits, get_retries=0)  # so that tests see a get that breaks off
        self.machine = Client(
            name, world.hosts_of, weight=weight, priority=priority, limits=limits, pool=world.pool, chunk=world.chunk
        )

    def start(self) -> None:
        me = -(1 << 40) - self.actor.index  # no peer uses this number
        endpoint = for_client(Recorder(self.machine, self.actor), me, self.actor.index + 1, self.world.timing.lease)
        self.actor.boot(endpoint)

    # --- calls ------------------------------------------------------------------------------------------

    def register(self, program: Program, tell: bool = False, anew: bool = False) -> int:
        """Once for each program; `anew`: once more."""
        for known, number in self._programs if not anew else ():
            if known is program:
                return number
        number = self._said(self.machine.register(program, self.world.now, tell))
        if tell:
            self.awaited[number] = None
        if not anew:
            self._programs.append((program, number))
        self._called()
        return number

    def unregister(self, program: int) -> None:
        self.machine.unregister(program, self.world.now)
        self.awaited.pop(program, None)
        self._programs = [known for known in self._programs if known[1] != program]
        self._called()

    def program_told(self, said: e.ProgramTold) -> None:
        if said.program not in self.awaited or said.program in self.heard:
            self.world.faults.append(f"client {self.name} is told of program {said.program}, twice or unasked")
        self.heard[said.program] = said

    def submit(self, program: Program, *args: Handle | bytes, **options: Any) -> RunHandle:
        number = self.register(program)
        digests = [contents.literal(arg) if isinstance(arg, bytes) else arg.digest for arg in args]
        names = tuple(arg if isinstance(arg, bytes) else arg.name for arg in args)
        for index in program.donate_args:
            if isinstance(given := args[index], Handle):
                given.released = True
        said = self.machine.submit(number, names, self.world.now, **options)
        assert not isinstance(said, Blocked), said
        made = oracle.results(program, digests)
        shards = [_shards_of(program, ref) for ref in program.results]
        results = [Handle(*each) for each in zip(said.results, made, shards, strict=True)]
        self.buffers.update((handle.name, handle) for handle in results if handle.name)
        run = self.runs[said.run] = RunHandle(said.run, program, results)
        self._called()
        return run

    def put(self, value: Value, where: SliceSpec) -> Handle:
        value = msgspec.structs.replace(value, slice=0)  # in a program it may be another one
        name = self._said(self.machine.put(value, where, self.world.now))
        handle = self.buffers[name] = Handle(name, contents.put(self.name, name), _distinct(value, where))
        handle.is_put = True
        self._called()
        return handle

    def view(self, value: Value, where: SliceSpec, *shards: tuple[Handle, int]) -> Handle:
        """`shards`: by device of the slice."""
        value = msgspec.structs.replace(value, slice=0)
        named = tuple((handle.name, shard) for handle, shard in shards)
        name = self._said(self.machine.view(value, where, named, self.world.now))
        made = tuple((handle.digest, shard) for handle, shard in shards)
        handle = self.buffers[name] = Handle(name, contents.viewed(made), _distinct(value, where))
        handle.is_view = True
        self.views[name] = handle.digest, made
        self._called()
        return handle

    def get(self, handle: Handle, shard: int = -1) -> Fetch:
        request = self._said(self.machine.get(handle.name, self.world.now, shard))
        fetch = self.fetches[request] = Fetch(request, handle, shard)
        self._called()
        return fetch

    def release(self, *handles: Handle) -> None:
        for handle in handles:
            handle.released = True
        self.machine.release(tuple(handle.name for handle in handles), self.world.now)
        self._called()

    def release_all(self) -> None:
        self.release(*(handle for handle in self.buffers.values() if not handle.released))

    def release_slice(self, name: str) -> None:
        self.machine.release_slice(name, self.world.now)
        self._called()

    def relocate(self, action: Literal["move", "suspend", "resume"], name: str = "", island: str = "") -> None:
        request = self.machine.relocate(action, name, island, self.world.now)
        if not isinstance(request, Blocked):
            self.relocating[request] = None
        self._called()

    def elastic(self, name: str, sizes: tuple[int, ...], like: SliceSpec, moves_on: int = -1) -> None:
        """`moves_on`: so long after it has heard of another size, it releases what it had before, and has something
        there; -1: not by itself."""
        self.moves_on = moves_on
        request = self.machine.elastic(name, like, sizes, self.world.now)
        if isinstance(request, int):
            self.sizes[name] = []
            self._sized[request] = name
        self._called()

    def moved_on(self, name: str) -> SliceSpec | None:
        """The slice that it is now."""
        spec = self.machine.move_on(name, self.world.now)
        self._called()
        return spec if isinstance(spec, SliceSpec) else None

    def sized(self, name: str, spec: SliceSpec) -> None:
        self.sizes[name].append(spec)
        if self.moves_on >= 0:
            self.world.soon(self.moves_on, self._move_on, name)

    def _move_on(self, name: str) -> None:
        if self.moves_on >= 0 and self.machine.state in ("open", "away") and not self.actor.still:
            if any(not _over(handle) for handle in self._there.values()):
                self.world.soon(1_000_000, self._move_on, name)
                return
            spec = self.moved_on(name)
            if spec is not None and spec.name not in self._there:
                value = Value((4 * spec.devices,), "float32", 0, Sharding(((0,),)))
                self._there = {spec.name: self.put(value, spec)}

    def cancel(self, run: RunHandle) -> None:
        self.machine.cancel(run.name, self.world.now)
        self._called()

    def stop(self, run: RunHandle) -> None:
        self.machine.stop(run.name, self.world.now)
        self._called()

    def waited(self, run: RunHandle) -> None:
        self.machine.waited(run.name, self.world.now)
        self._called()

    def close(self) -> None:
        self.machine.close(self.world.now)
        self._called()
        self.world.client_left(self.actor.number)

    def wait(self, *things: RunHandle | Fetch | Handle) -> bool:
        """Let the world go on until these have ended."""
        return self.world.run_until(lambda: all(map(_over, things)))

    def _said(self, answer: int | Blocked) -> int:
        assert not isinstance(answer, Blocked), answer
        return answer

    def _called(self) -> None:
        """Let the machine carry out the call that was made."""
        self.actor.feed(e.CallsMade())

    # --- results ----------------------------------------------------------------------------------------

    def outstanding(self) -> bool:
        """Whether the client waits for anything."""
        return self.actor.alive and not (
            all(run.ends for run in self.runs.values())
            and all(fetch.over for fetch in self.fetches.values())
            and all(_over(handle) for handle in self.buffers.values() if handle.is_put or handle.is_view)
            and self.heard.keys() >= self.awaited.keys()
            and not self.relocating
            and (self.machine.state == "closed" or all(self.sizes.values()))
        )

    def run_ended(self, said: e.RunEnded) -> None:
        run = self.runs[said.run]
        run.ends += 1
        run.blame, run.ended_at, run.undone = said.blame, self.world.now, said.undone
        for ref, handle in zip(run.program.results, run.results, strict=True):
            if isinstance(ref, Out):
                self._makers[handle.name] = run
        for fetch in self.fetches.values() if said.blame is not None else ():
            self._check_worth(fetch)

    def fetched(self, request: int, blame: m.Blame | None) -> None:
        fetch = self.fetches[request]
        fetch.end(blame)
        self._check_worth(fetch)

    def _check_worth(self, fetch: Fetch) -> None:
        """Nobody reads a number that a failed run made, unless it was ready before the run failed."""
        handle, run = fetch.handle, self._makers.get(fetch.handle.name)
        read = fetch.over and fetch.blame is None and not handle.released
        if read and run is not None and run.blame is not None and not handle.was_ready:
            self.world.faults.append(f"client {self.name} reads buffer {handle.name} of run {run.name}, which failed")

    def refused(self, said: e.CallRefused) -> None:
        self.refusals.append(said)
        if said.what == "get":
            self.fetches[said.name].end(said.blame)
        elif said.what == "put":
            self.buffers[said.name].blame = said.blame
        elif said.what == "relocate":
            del self.relocating[said.name]
        elif said.what == "elastic":
            del self.sizes[self._sized[said.name]]


def _over(thing: RunHandle | Fetch | Handle) -> bool:
    if isinstance(thing, RunHandle):
        return thing.ended
    if isinstance(thing, Fetch):
        return thing.over
    return thing.ready or thing.blame is not None or thing.released


def _shards_of(program: Program, ref: Ref) -> int:
    node = program.nodes[ref.node] if isinstance(ref, Out) else None
    if not isinstance(ref, Out) or not isinstance(node, Node):
        return 1
    value = node.outputs[ref.output]
    return _distinct(value, program.slices[value.slice])


def _distinct(value: Value, where: SliceSpec) -> int:
    """How many distinct shards an array of this type has."""
    mesh = value.sharding.mesh or where.mesh_shape
    return prod(mesh[axis] for axes in value.sharding.dims for axis in axes)
