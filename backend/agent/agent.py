"""A host as a process: core's host machine on a node, with devices that carry out its commands.

    controller --Enrol--> who we are     Node <--> core.host --Launch ...--> Devices --Finished ...--> Node
                                                        `--OpenSend, OpenRecv, Fill--> contents

Several agents of `timed` devices may live in one process and loop; one with real devices has a process of its own.
"""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any

import grpc
import msgspec

from core.host import Host
from core.link import for_host
from core.model import Plan, spans
from core.protocol import CONTROLLER, Blame, Chunk, peers
from core.protocol import effects as e

from ..auth import Access, RefusalLogger, TurnGate, access, advertised, reached
from ..contents import Blobs, ContentsMismatch, HostPieces, Overflow, ShardSource, Sink, callbacks
from ..coordination import world_name
from ..devices import Devices, WorldSpec, gang_times
from ..node import CallError, HostClock, NetworkNode, calls
from ..streams import LentReading, Listener, Load, StreamRefused
from ..wire import Address, Contents, Pass, call_messages
from .agent_machine import direct_address
from .callback_lines import CallbackLines
from .end_reports import EndReports

log = logging.getLogger("seaway.agent")
FETCHING_S = 10.0  # seconds for which it asks again for code that the controller lacks


class HostNames:
    """Implements `node.Names` for a host."""

    def __init__(self, host: int, secret: bytes) -> None:
        self._me, self._secret = f"host/{host}", secret

    def mine(self, peer: int) -> tuple[str, str]:
        return self._me, access.proof(self._secret, self._me)

    def name_of(self, peer: int) -> str:
        return "controller" if peer == CONTROLLER else f"host/{peer}"

    def peer_of(self, name: str, proof: str) -> int | None:
        kind, _, number = name.partition("/")
        if not number.isdigit() or not access.proves(self._secret, name, proof):
            return None
        return int(number) if kind == "host" else peers.client(int(number)) if kind == "client" else None

    def beside(self, peer: int, message: msgspec.Struct) -> list[Address | Pass]:
        return []


class Agent:
    """One host. `controller`: its address. `advertise`: the address for other processes, if it is not `bind`.
    `over(reason, for_good)` is called once when this host is to end. `clock`: of this process; hosts may share it."""

    def __init__(
        self, controller: str, devices: Devices, *, name: str = "", island: str = "", host: int = -1,
        rank: int = -1,
        access: Access | None = None, bind: str = "127.0.0.1:0", advertise: str = "",
        over: Callable[[str, bool], None] = lambda reason, for_good: None, clock: HostClock | None = None,
    ) -> None:  # fmt: skip
        self.controller, self.devices, self.access = controller, devices, access or Access()
        self.access.may_bind(bind)
        self._advertise = advertised(bind, advertise)
        self.name = name or f"{socket.gethostname()}/{secrets.token_hex(3)}"
        self._island, self._wanted, self._rank, self._bind, self._over = island, host, rank, bind, over
        self.start_id = secrets.randbits(30) + 1
        self.clock = clock or HostClock()
        devices.stamps.now = self.clock.now
        self.address = ""
        refusals, gate = RefusalLogger(), TurnGate()
        self._refusals, self._gate = refusals, gate
        lines = CallbackLines()
        devices.ask = lines.ask
        self._listener = Listener(
            self.access, refusals, gate, answers={call_messages.GangTimesReply: self._stamps},
            streams={callbacks.STREAM: lines.take}, vouched=self._vouched,
        )  # fmt: skip
        self._code = Blobs()
        self._sources: dict[int, ShardSource] = {}
        self._sinks: dict[int, Sink] = {}  # by transfer
        self._counted: set[int] = set()  # transfers of sparse exchanges whose pieces have been counted
        self._local: dict[tuple[int, int, int], Contents] = {}  # chunks from this host to itself
        self._acts = self._table()
        self.ended = False

    # --- life -----------------------------------------------------------------------------------------------

    async def start(self) -> int:
        """Enrols and starts; returns the host's number. Raises CallError if the controller refuses it."""
        opened = self._listener.open(self._bind)
        try:
            return await self._enrol(opened)
        except BaseException:
            await self._listener.close()
            raise

    async def _enrol(self, opened: str) -> int:
        where, at = self._advertise
        self.address = f"{where}:{at or opened.rpartition(':')[2]}"
        about = self.devices.about()
        request = call_messages.Enrol(
            self.name, self.start_id, self.address, about.platform, about.kind, about.devices, about.memory,
            self._island, self._wanted, self._rank,
        )  # fmt: skip
        self._channel = self.access.channel(self.controller)
        said: call_messages.Enrolled = await calls.ask(self._channel, self.access, request)
        self._on_island = said.cluster.island_of_host(said.host).index
        born = time.time_ns() // 1_000_000
        self.host = Host(said.host, said.cluster, incarnation=born, beat=said.beat, start=said.start)
        self._pieces = HostPieces(said.host, self.host.hosts)
        endpoint = for_host(self.host, said.host, self.start_id, said.lease)
        self.node = NetworkNode(
            endpoint, self._perform, HostNames(said.host, said.secret), access=self.access, contents=self._contents,
            room=self._room,
            failed=self._fail, refusals=self._refusals, gate=self._gate,
        )  # fmt: skip
        self.node.directory["controller"] = self.controller
        self._ends = EndReports(self.node)
        self.devices.post, self.devices.hosts = self._ends.post, self.host.hosts
        lent = LentReading(self.node.loop, self.node.lock, self._ends.tell_due)
        self._ends.thread = self.devices.reads(lent, self._ends.tell_due)
        if self._ends.thread is not None:
            self.node.lend(CONTROLLER, lent)
        self.devices.failed = self._devices_failed
        self._secret, self._lease = said.secret, said.lease / 1e9
        self._direct = await asyncio.to_thread(direct_address, where, self._bind, self.controller)
        self._listener.start(self.node.admit, self.node.accept)
        self.node.start()
        self.clock.join(said.host, said.secret, self.controller, self.access)
        return said.host

    async def stop(self) -> None:
        self.ended = True
        self.devices.close()
        await self.clock.leave(self.host.host)
        await self._listener.close()
        await self.node.stop()
        await self._channel.close()

    def leave(self, reason: str, patience: float = 0.0) -> None:
        """Asks to be drained; Stop follows. `patience`: seconds in which what is on this host may move away."""
        self.node.feed(e.LeaveRequested(reason, int(patience * 1e9)))

    def _vouched(self, name: str, proof: str) -> bool:
        """Whether the controller has let in a client of this name, whose token is perhaps not the cluster's."""
        return name.startswith("client/") and access.proves(self._secret, name, proof)

    async def _stamps(self, request: call_messages.GangTimesReply) -> call_messages.Stamped:
        try:
            return gang_times.answer(self._secret, request, self.devices.stamps, self.clock.clock)
        except CallError as wrong:
            raise StreamRefused("pass", str(wrong)) from None

    def _fail(self, error: BaseException) -> None:
        # the controller refused us: nothing is wrong in this process
        told = isinstance(error, PermissionError)
        log.error("host %s failed: %s", self.name, error, exc_info=None if told else error)
        self._end(f"{type(error).__name__}: {error}")

    def _devices_failed(self, error: BaseException) -> None:
        """Ends this host after an error of its devices, in any thread."""
        self.node.loop.call_soon_threadsafe(self._fail, error)

    def _end(self, reason: str, for_good: bool = False) -> None:
        if not self.ended:
            self.ended = True
            self._over(reason, for_good)

    # --- core's commands --------------------------------------------------------------------------------------

    def _perform(self, effect: Any) -> None:
        self._acts[type(effect)](effect)

    def _table(self) -> dict[type, Callable[[Any], None]]:
        devices = self.devices
        acts: dict[type, Callable[[Any], None]] = {
            e.Launch: self._launch,
            e.MakeBuffer: devices.make,
            e.MakeView: devices.view,
            e.FreeBuffer: self._free,
            e.CompileCode: self._compile_soon,
            e.ForgetPlan: lambda effect: devices.forget(effect.plan),
            e.CountRows: self._count,
            e.SpillBuffer: devices.spill,
            e.RestoreBuffer: devices.restore,
            e.Abandon: self._abandon,
            e.Cut: lambda effect: devices.cut(effect.seq),
            e.Reform: self._reform,
            e.Stop: lambda effect: self._end(effect.reason, effect.for_good),
            e.LogLine: lambda effect: log.info("%s", effect.text),
            e.Prepare: lambda effect: None,  # arrays are handles, and a launch takes handles
            e.ExpectRecv: lambda effect: None,
            e.VoidView: lambda effect: None,
            e.DropTransfer: lambda effect: None,  # Sent or Received follows
        }
        acts |= {
            e.OpenSend: self._open_send, e.OpenRecv: self._open_recv, e.Send: self._send_here, e.Fill: self._fill,
            e.Received: self._received, e.Sent: self._sent,
        }  # fmt: skip
        return acts

    def _launch(self, command: e.Launch) -> None:
        self._ends.launched(command.seq)
        self.devices.launch(command, self._plan_of(command.run))

    def _free(self, command: e.FreeBuffer) -> None:
        self.devices.free(command.buffer, command.count)

    def _abandon(self, command: e.Abandon) -> None:
        self._ends.abandoned(command.seqs)
        self.devices.abandon(command.seqs)

    def _reform(self, command: e.Reform) -> None:
        self._ends.abandoned(command.abandon)
        self.devices.reform(command, self._world(command))

    def _compile_soon(self, command: e.CompileCode) -> None:
        self.node.loop.call_soon_threadsafe(lambda: self.node.task(self._compile(command)))

    def _plan_of(self, run: int) -> Plan:
        plan = self.host.executor.plan_of(run)
        assert plan is not None, f"run {run} is launched, but unknown"
        return plan

    def _world(self, command: e.Reform) -> WorldSpec:
        address = reached(self.node.directory.get(world_name(self._on_island, command.epoch), ""), self.controller)
        members = list(spans.items(command.members))
        devices = {host: tuple(self.host.hosts.devices_of(host)) for host in members}
        return WorldSpec(
            command.epoch, address, members, self.host.host, devices, listen=self._direct, lease=self._lease
        )

    async def _compile(self, command: e.CompileCode) -> None:
        try:
            plan = self.host.executor.plan(command.plan)
            if plan is None:
                raise CallError("its plan was forgotten before it was compiled")
            code = plan.codes[command.code]
            blobs = {code.code: await self._find(code.code)} if code.code else {}
        except CallError as wrong:
            self.node.feed(e.CodeReady(command.plan, command.code, Blame("code", str(wrong))))
            return
        with self.node.lock:
            self.devices.compile(command, plan, blobs)
            if self.host.executor.plan(command.plan) is None:  # forgotten while the code was fetched
                self.devices.forget(command.plan)

    async def _find(self, name: str) -> bytes:
        known = self._code.find(name)
        if known is None:
            found = await self._fetched(name)
            if self._code.keep(found.code) != name:
                raise CallError(
                    f"the controller's bytes for code {name[:12]} have another hash", grpc.StatusCode.DATA_LOSS
                )
            known = found.code
        return known

    async def _fetched(self, name: str) -> call_messages.FindReply:
        """Fetches code. A controller that has been restarted may still be waiting for it from its clients."""
        until = time.monotonic() + FETCHING_S
        while True:
            try:
                found: call_messages.FindReply = await calls.ask(self._channel, self.access, call_messages.Find(name))
                return found
            except CallError as wrong:
                if wrong.code != grpc.StatusCode.NOT_FOUND or time.monotonic() > until:
                    raise
            await asyncio.sleep(FETCHING_S / 20)

    # --- contents -----------------------------------------------------------------------------------------------

    def _open_send(self, command: e.OpenSend) -> None:
        if command.blame is None:
            sparse = command.transfer in self._counted
            self._sources[command.transfer] = ShardSource(command, self._pieces, self.devices.shards, sparse=sparse)

    def _open_recv(self, command: e.OpenRecv) -> None:
        self._sinks[command.transfer] = Sink(command, self._pieces)

    def _send_here(self, command: e.Send) -> None:
        """From this host to itself."""
        chunk = command.message
        if isinstance(chunk, Chunk):
            found = self._contents(chunk)
            self._local[chunk.transfer, chunk.piece, chunk.offset] = found() if callable(found) else found

    def _fill(self, command: e.Fill) -> None:
        chunk = command.chunk
        sink = self._sinks.get(chunk.transfer)
        if sink is None:
            return
        local = self._local.pop((chunk.transfer, chunk.piece, chunk.offset), None)
        contents = self.node.contents if local is None else local
        if chunk.nbytes and not contents:
            return  # the sender could not read the contents, see `_read`: the sink will be incomplete
        try:
            sink.fill(chunk, contents)
        except ContentsMismatch as misfit:  # the sender is wrong or of another version: only it is to suffer
            self.node.post(e.Malformed(peers.peer_of(chunk.sender), str(misfit)))

    def _received(self, event: e.Received) -> None:
        filled = self._sinks.pop(event.transfer, None)
        if filled is None or event.blame is not None:
            return
        for array, (buffer, layout) in enumerate(zip(filled.buffers, filled.layouts, strict=True)):
            try:
                self.devices.fill(buffer, layout, filled.shards(array))
            except (Overflow, ContentsMismatch) as error:  # gangs that read the buffer get this reason
                self.devices.spoil(buffer, str(error))

    def _sent(self, event: e.Sent) -> None:
        self._sources.pop(event.transfer, None)
        self._counted.discard(event.transfer)

    def _room(self, chunk: Chunk) -> memoryview | None:
        sink = self._sinks.get(chunk.transfer)
        return None if sink is None else sink.room(chunk)

    def _count(self, command: e.CountRows) -> None:
        self._counted.add(command.transfer)
        self.devices.count(command)

    def _contents(self, chunk: Chunk) -> Load | Contents:
        """A chunk's contents if they are at hand, otherwise a function that reads them. A chunk may be sent again when
        its receiver has all contents and its source is gone; then it is empty, since the receiver does not read it."""
        source = self._sources.get(chunk.transfer)
        if source is None:
            return b""
        if source.at_hand(chunk, self.devices.at_hand):
            return self._read(source, chunk)
        return lambda: self._read(source, chunk)

    def _read(self, source: ShardSource, chunk: Chunk) -> Contents:
        """If the contents cannot be had, core hears of it before anybody can confirm the chunk, which is empty then."""
        try:
            return source.bytes_of(chunk)
        except Exception as error:
            if not chunk.offset:
                log.warning("contents that were to be sent cannot be had: %s", error)
            self.node.follow(e.SourceLost(chunk, source.array_of(chunk.piece), Blame("lost", str(error))))
            return b""
