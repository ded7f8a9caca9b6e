"""The controller as a process: core's machine on a node. It enrols hosts, keeps code, forms worlds, answers calls.

    agents --Enrol--> Enrolment (host numbers)            clients --About, Keep--> blobs
    streams <--> Node <--> core.controller --FormWorld--> worlds --> coordination processes

It runs in a process of its own (`python -m seaway controller`) or in a thread of a user's process (`sw.local`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import msgspec

from core.controller import HOUR, ON_DEVICES, Config, Controller
from core.link import for_controller
from core.model import MOST_DEVICES, Account, Cluster, Impossible
from core.protocol import effects as e
from core.protocol import messages as m
from core.record import Look, Trace
from core.schedule.policy import Fifo, Policy

from ..admin import Children, SnapshotShelf, TraceSnapshot, durations, durations_of, health, packed
from ..auth import Access, RefusalLogger, TurnGate, access
from ..contents import LIMIT, Blobs
from ..devices import gang_times
from ..node import CallError, Clocks, NetworkNode, calls, new_server
from ..streams import Connection, GrpcPipe, Listener, StreamRefused
from ..wire import Address, Opening, Pass, call_messages, versions
from . import roles
from .cluster_file import cluster_in
from .cluster_status import accounts_of, looked, status_of
from .eventlogs import Recording
from .operator_calls import OperatorCalls
from .registry import Enrolment
from .state_folder import CodeFolder, known_file, new_start
from .world_services import WorldServices

S = 1_000_000_000
LEASE = 10 * S
BEAT = S
USAGE = 60.0  # seconds after which what was used is written: a process that is killed loses the last of it
AGAIN = 10.0  # seconds after which a file that could not be written is tried again
DIGITS = 19  # fewer than that has each number of a client
FIRST_CLIENT = MOST_DEVICES  # the number of the first client's connection: no cluster grows to so many hosts
FEW = 1024  # names of clients that are kept without a check whether the clients are still there
log = logging.getLogger("seaway.controller")


def hours_ahead() -> int:
    """How many hours the calendar, since 1970, is ahead of this machine's clock."""
    return time.time_ns() // HOUR - NetworkNode.now() // HOUR


class ControllerNames:
    """Implements `node.Names` for the controller, which dials no peer."""

    def __init__(self, hosts: Callable[[], int], secret: bytes, linked: Callable[[int], bool]) -> None:
        self._hosts, self._secret, self._linked = hosts, secret, linked
        self._clients: dict[str, int] = {}  # by the names that clients use until they have a number
        self._came, self._room = 0, FEW

    def mine(self, peer: int) -> tuple[str, str]:
        raise AssertionError("the controller dials no peer")

    def name_of(self, peer: int) -> str:
        raise AssertionError("the controller dials no peer")

    def peer_of(self, name: str, proof: str) -> int | None:
        kind, _, number = name.partition("/")
        if kind == "host" and number.isdigit() and int(number) < self._hosts():
            return int(number) if access.proves(self._secret, name, proof) else None
        if kind == "who" and len(number) >= 32:
            return self._clients.get(number) or self._new(number)
        return None

    def _new(self, who: str) -> int:
        """A new peer number; none is used twice. Names of clients that have gone are dropped from time to time."""
        if len(self._clients) >= self._room:
            self._clients = {each: peer for each, peer in self._clients.items() if self._linked(peer)}
            self._room = max(FEW, 2 * len(self._clients))
        peer = self._clients[who] = FIRST_CLIENT + self._came
        self._came += 1
        return peer

    def beside(self, peer: int, message: msgspec.Struct) -> list[Address | Pass]:
        """The proof of a client's number, which goes with the message that tells it the number."""
        if peer < FIRST_CLIENT:
            return []
        notes = message.notes if isinstance(message, m.ClientMessages) else (message,)
        return [
            Pass(name, access.proof(self._secret, name))
            for note in notes
            if isinstance(note, m.Opened)
            for name in (f"client/{note.client}",)
        ]


class Server:
    """The controller's process; use it within an asyncio loop.

    `bind`: where to listen; "127.0.0.1:0" is any free port, for this machine only. `kept`: a folder for state that a
    later start needs. `code`: most bytes of code that it keeps. `record`: a file for all events. `starts`: see core's.
    """

    def __init__(
        self, cluster: Cluster, *, folder: Path, policy: Callable[[], Policy] = Fifo, config: Config | None = None,
        access: Access | None = None, bind: str = "127.0.0.1:0", lease: int = LEASE, beat: int = BEAT,
        incarnation: int = 0, starts: tuple[int, ...] = (), secret: bytes = b"", platform: str = "cpu",
        trace: Trace | None = None,
        kept: Path | None = None, record: Path | None = None, code: int = LIMIT,
    ) -> None:  # fmt: skip
        self.access, self._bind = access or Access(), bind
        self.access.may_bind(bind)
        self.lease, self.beat, self.platform = lease, beat, platform
        self.trace = trace if trace is not None else Trace()
        self.secret = secret or secrets.token_bytes(32)
        config = msgspec.structs.replace(config or ON_DEVICES, lease=lease, accounts=bool(self.access.people))
        starts = starts or (new_start(),)
        self.controller = Controller(cluster, policy, config, incarnation=incarnation, starts=starts, trace=self.trace)
        self.log = Recording(self.controller, record, policy, NetworkNode.now()) if record else None
        identity = secrets.randbits(30) + 1
        endpoint = for_controller(self.log or self.controller, identity, lease)
        names = ControllerNames(lambda: self.cluster.hosts, self.secret, endpoint.linked)
        self.refusals, self.gate = RefusalLogger(), TurnGate()
        self.node = NetworkNode(
            endpoint,
            self._perform,
            names,
            access=self.access,
            failed=self._fail,
            refusals=self.refusals,
            gate=self.gate,
        )
        self.children = Children(folder)
        self.worlds = WorldServices(
            self.children, bind.rpartition(":")[0] or "127.0.0.1",
            lambda island: self.enrolment.platform_of(island) != "timed", self.node.announce, self.node.post,
        )  # fmt: skip
        self.operating = OperatorCalls(self, kept)
        agents = known_file(kept, "agents") if kept else None
        self.enrolment = Enrolment(lambda: self.cluster, self.node.connected, agents)
        self.enrolment.drained = self.controller.state.drained.__contains__
        self.blobs = Blobs(code, self._code_in_use)
        self._code = CodeFolder(kept / "code", code, self._code_in_use) if kept else None
        self._usage = known_file(kept, "usage") if kept else None
        self._files = [*self.operating.files, *filter(None, (agents, self._usage))]
        self._shelf = SnapshotShelf()
        self.clocks = Clocks(lambda: self.cluster.hosts, self.secret, NetworkNode.now)
        self.identity, self.began = secrets.token_hex(8), NetworkNode.now()  # of this start's trace
        self.told: list[str] = []  # the controller's latest messages to its operator
        self.replaced: list[e.PolicyReplaced] = []
        self.failure: asyncio.Future[None] = self.node.loop.create_future()
        self.address = ""
        self._grpc = new_server()  # behind the listener, which has the port
        self._listener: Listener | None = None

    @property
    def cluster(self) -> Cluster:
        """As it is now: it may have grown."""
        return self.controller.cluster

    # --- life -----------------------------------------------------------------------------------------------

    async def start(self) -> str:
        """Starts; returns its address."""
        answers: dict[type[msgspec.Struct], calls.Answer] = {
            call_messages.Enrol: self._enrol, call_messages.AboutReply: self._about, call_messages.Keep: self._keep,
            call_messages.Find: self._find, call_messages.Lacks: self._lacks, call_messages.Status: self._status,
            Look: self._look, call_messages.Recorded: self._recorded, call_messages.CancelCall: self._cancel,
            call_messages.SeenReply: self._seen, call_messages.Tick: self.clocks.answer,
            call_messages.Permit: self._permit, call_messages.UsageCall: self._used,
            call_messages.OperateCall: self._operate, call_messages.GrowCall: self._grow,
        }  # fmt: skip
        handlers = calls.handlers(self.access, answers, self.refusals, self.gate, self._why_not)
        self._grpc.add_generic_rpc_handlers(handlers)
        self._grpc.add_generic_rpc_handlers(health.handlers(self.serves, self.refusals, self.gate))
        self._grpc.add_generic_rpc_handlers([calls.UnknownCall(self.refusals, self.gate)])
        pipe = GrpcPipe(self.access.bind(self._grpc, "127.0.0.1:0"), self.refusals)
        self._listener = Listener(self.access, self.refusals, self.gate, pipe=pipe)
        self.address = self._listener.open(self._bind)
        await self._grpc.start()
        self._listener.start(self._admit, self._accept)
        self.node.start()
        self.operating.again()
        if self._usage is not None:
            rows = [(name, hour - hours_ahead(), e.Used(*used)) for name, hour, *used in self._usage.read()]
            if rows:
                self.node.feed(e.UsageKnown(tuple(rows)))
            self.node.task(self._keep_usage())
        if self._files:
            self.node.task(self._write_again())
        for host, agent in self.enrolment.agents().items():  # agents of an earlier start reconnect by themselves
            self.node.announce(f"host/{host}", agent.address)
        return self.address

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        self._write_usage()
        await self.node.stop()
        await self._grpc.stop(0.2)
        await asyncio.to_thread(self.children.end_all)
        if self.log is not None:
            await asyncio.to_thread(self.log.close)

    async def _keep_usage(self) -> None:
        while True:
            await asyncio.sleep(USAGE)
            await asyncio.to_thread(self._write_usage)

    async def _write_again(self) -> None:
        while True:
            await asyncio.sleep(AGAIN)
            with self.node.lock:
                for file in self._files:
                    file.write_again()

    def _write_usage(self) -> None:
        if self._usage is not None:
            with self.node.lock:
                rows = self.controller.accounts.rows()
            self._usage.write(
                [(name, hour + hours_ahead(), *msgspec.structs.astuple(used)) for name, hour, used in rows]
            )

    def _admit(self, opening: Opening, connection: Connection) -> int:
        """The peer that opens a stream. Only what has the cluster's own token is a host."""
        account = connection.account
        if opening.name.startswith("host/") and (account is None or account.role != "cluster"):
            raise StreamRefused("role", "a host needs the cluster's own token, and not that of an account")
        return self.node.admit(opening, connection)

    def _accept(self, peer: int, connection: Connection) -> None:
        """Tells core whose the connection is, before anything is said on it."""
        account, opening = connection.account, connection.opening
        if self.access.people and account is not None and opening is not None and peer >= FIRST_CLIENT:
            name, _, proof = opening.proof.rpartition("/")
            _, _, number = name.partition("/")
            known = number.isdigit() and len(number) < DIGITS and access.proves(self.secret, name, proof)
            self.node.feed(e.PeerIdentified(peer, account, int(number) if known else 0))
        self.node.accept(peer, connection)

    def _why_not(self, account: Account, request: msgspec.Struct) -> str:
        clients = self.controller.snapshot().clients if isinstance(request, call_messages.CancelCall) else ()
        return roles.why_not(account, request, clients)

    def _fail(self, error: BaseException) -> None:
        log.error("the controller failed: %s", error, exc_info=error)
        if not self.failure.done():
            self.failure.set_exception(error)

    # --- core's commands --------------------------------------------------------------------------------------

    def _perform(self, effect: Any) -> None:
        match effect:
            case e.FormWorld():
                self.node.loop.call_soon_threadsafe(self.node.task, self.worlds.form(effect))
            case e.DropWorlds():
                self.node.loop.call_soon_threadsafe(self.worlds.drop, effect)
            case e.LogLine(text, passing, alarm):
                self._tell(logging.ERROR if alarm else logging.INFO, text, keep=not passing)
            case e.OperatorAnswer(wrong):
                self.operating.answer = wrong
            case e.SuspensionsChanged() | e.HostsJoined():
                self.operating.keep(effect)
            case e.PolicyReplaced():
                self.replaced.append(effect)
                self._tell(logging.WARNING, effect.text)
            case _:
                raise NotImplementedError(effect)

    def _tell(self, level: int, text: str, keep: bool = True) -> None:
        log.log(level, "%s", text)
        if keep:
            self.told = [*self.told[-99:], text]

    # --- answers to calls -----------------------------------------------------------------------------------------

    async def _enrol(self, request: call_messages.Enrol) -> call_messages.Enrolled:
        try:
            host = self.enrolment.enrol(request)
        except CallError as wrong:
            log.warning("agent %r at %s was refused: %s", request.name, request.address, wrong)
            self.node.feed(e.HostRefused(self.enrolment.wanted(request), request.name, str(wrong)))
            raise
        log.info("agent %r is host %d, at %s", request.name, host, request.address)
        self.node.feed(e.HostAccepted(request.name))
        self.node.announce(f"host/{host}", request.address)
        start = self.controller.state.start
        return call_messages.Enrolled(host, self.cluster, self.secret, self.lease, self.beat, start)

    async def _about(self, request: call_messages.AboutReply) -> call_messages.Described:
        platforms = self.enrolment.platforms() or (self.platform,)
        return call_messages.Described(self.cluster, platforms, self.lease, versions.mine())

    async def _keep(self, request: call_messages.Keep) -> call_messages.KeepReply:
        try:
            name = self.blobs.keep(request.code)
        except ValueError as error:
            raise CallError(str(error), grpc.StatusCode.RESOURCE_EXHAUSTED) from None
        if self._code is not None:
            await asyncio.to_thread(self._code.keep, name, request.code)
        return call_messages.KeepReply(name)

    def _code_in_use(self) -> set[str]:
        """The code of all registered programs."""
        with self.node.lock:
            return {code for client in self.controller.snapshot().clients for code in client.codes}

    async def _lacks(self, request: call_messages.Lacks) -> call_messages.Lacking:
        """What the folder has is read now, since it may be damaged, and kept in memory, as what clients leave is."""
        missing = []
        for name in request.hashes:
            if self.blobs.find(name) is not None:
                continue
            code = await self._stored(name)
            if code is None:
                missing.append(name)
                continue
            with suppress(ValueError):  # there is no room; the folder has it
                self.blobs.keep(code)
        return call_messages.Lacking(tuple(missing))

    async def _stored(self, name: str) -> bytes | None:
        return None if self._code is None else await asyncio.to_thread(self._code.find, name)

    async def _find(self, request: call_messages.Find) -> call_messages.FindReply:
        code = self.blobs.find(request.hash) or await self._stored(request.hash)
        if code is None:
            raise CallError(f"no client has left code {request.hash[:12]}", grpc.StatusCode.NOT_FOUND)
        return call_messages.FindReply(code)

    async def _status(self, request: call_messages.Status) -> call_messages.Report:
        with self.node.lock:
            return call_messages.Report(msgspec.json.encode(status_of(self)))

    async def _used(self, request: call_messages.UsageCall) -> call_messages.Report:
        with self.node.lock:
            return call_messages.Report(msgspec.json.encode(accounts_of(self, request.hours)))

    async def _look(self, request: Look) -> call_messages.LookReply:
        with self.node.lock:
            found = looked(self, request)
        return packed(found)

    async def _recorded(self, request: call_messages.Recorded) -> call_messages.RecordedPage:
        number = request.snapshot
        if not number:
            with self.node.lock:
                snapshot = TraceSnapshot(self.trace)
            number = await asyncio.to_thread(self._shelf.put, snapshot)
        return self._shelf.page(number, request.page)

    async def _seen(self, request: call_messages.SeenReply) -> call_messages.StepTimes:
        with self.node.lock:
            if request.clients:
                return call_messages.StepTimes(by_client=durations_of(self.trace, frozenset(request.clients)))
            return call_messages.StepTimes(durations(self.trace))

    async def _permit(self, request: call_messages.Permit) -> call_messages.Permitted:
        """Signs which runs of the trace are these clients', for hosts."""
        for number, shown in request.clients:
            if not access.proves(self.secret, f"client/{number}", shown):
                raise CallError(f"the pass of client {number} is wrong", grpc.StatusCode.PERMISSION_DENIED)
        mine = {number for number, _ in request.clients}
        with self.node.lock:
            columns = self.trace.runs.columns()
        return await asyncio.to_thread(gang_times.permitted, self.secret, columns["run"], columns["client"], mine)

    async def _cancel(self, request: call_messages.CancelCall) -> call_messages.CancelReply:
        """Cancels runs as if their client had asked for it."""

        def cancel() -> call_messages.CancelReply:
            client = roles.only(self.controller.snapshot().clients, request.client)
            runs = sorted(run.number for run in client.runs if request.run in (0, run.number))
            for run in reversed(runs):  # runs that wait for another one come first
                self.node.feed(e.MessageReceived(client.peer, m.Cancel(run)))
            return call_messages.CancelReply(client.number, tuple(runs))

        return self.node.turn(cancel)

    async def _operate(self, request: call_messages.OperateCall) -> call_messages.OperateReply:
        return self.node.turn(self.operating.operate, request)

    async def _grow(self, request: call_messages.GrowCall) -> call_messages.OperateReply:
        try:
            cluster = await asyncio.to_thread(cluster_in, request.file, request.name)
        except Impossible as error:
            raise CallError(str(error)) from None
        return self.node.turn(self.operating.grow, cluster)

    def serves(self, service: str) -> bool | None:
        """Whether the controller or an island serves, for the health service."""
        if service in health.NAMES:
            return not self.failure.done()
        for island in self.controller.snapshot().islands:
            if island.name == service:
                return island.phase == "running"
        return None

    # --- for the operator -------------------------------------------------------------------------------------------

    def unrecorded(self) -> str:
        """Why the event log is incomplete; "": it is complete, or there is none."""
        return "" if self.log is None else self.log.file.lost

    def unkept(self) -> tuple[str, ...]:
        """What a later start will not know, since its file cannot be written."""
        return tuple(file.wrong for file in self._files if file.wrong)

    def ready(self) -> bool:
        """Whether all islands run."""
        return all(island.phase == "running" for island in self.controller.snapshot().islands)
