"""The halves of transfers that this host takes part in, and the copies of buffers to host memory and back.

A send opens when its source is ready, a receive when its memory is here. What then happens, and in which
order, is the transfer machine's; it answers every open half exactly once, with `Sent` or `Received`,
dropped ones too. So whether a transfer's data or its poison came first is decided in one place, and this
room need not know.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ...model import Hosts, Illegal, Layout, Move, receives_by_host, sends_by_host
from ...protocol import (
    Blame,
    Cause,
    Copied,
    Counted,
    CountRows,
    Done,
    DropTransfer,
    ExpectRecv,
    ExpectStep,
    MakeBuffer,
    OpenRecv,
    OpenSend,
    PoisonStep,
    Received,
    RecvStep,
    RestoreBuffer,
    RestoreStep,
    RowsCounted,
    SendStep,
    Sent,
    SpillBuffer,
    SpillStep,
)
from ...transfer import Piece, from_client, hosts_of, to_client
from .desk import Desk, Record
from .queue import Queue
from .runs import Run
from .shards import Shard, Shards
from .waits import Causes


class Half(Record):
    """A send, a receive, or a copy."""

    __slots__ = (
        "empty",
        "node",
        "pieces",
        "program",
        "shard",
        "source",
        "sparse",
        "target",
        "transfer",
        "waited",
    )

    def __init__(self, seq: int, home: dict[int, Half], transfer: int, shard: Shard) -> None:
        super().__init__(seq, "waiting", home, transfer)
        self.transfer = transfer
        self.shard = shard
        self.pieces: tuple[Piece, ...] = ()
        self.waited: Causes = ()  # beside the order itself: what it waits for to open
        self.source: Layout | None = None  # None: it comes from a client
        self.target: Layout | None = None  # None: it goes to a client
        self.sparse = False
        self.empty = False  # nothing travels to or from this host
        self.program = ""
        self.node = ""

    def describe(self) -> tuple[Any, ...]:
        return *super().describe(), self.empty, self.waited


class Moves:
    def __init__(self, desk: Desk, shards: Shards, queue: Queue, hosts: Hosts) -> None:
        self._desk = desk
        self._shards = shards
        self._queue = queue
        self._hosts = hosts
        self.sends: dict[int, Half] = {}
        self.recvs: dict[int, Half] = {}
        self.copies: dict[int, Half] = {}

    # --- sends --------------------------------------------------------------------------------------------

    def send(self, step: SendStep, run: Run, move: Move) -> None:
        facts, shard = run.facts, self._shards.get(run.ids[move.source])
        if shard is None:
            text = f"move {move.name!r} of run {run.id} reads a buffer that is not on this host"
            self.undoable(step.seq, text, run.ids[move.source])
            return
        half = self._new(step.seq, self.sends, step.transfer, shard)
        half.program, half.node = facts.plan.program, move.name
        half.source, half.target, half.sparse = (
            facts.layout(move.source),
            facts.layout(move.target),
            move.sparse,
        )
        if not move.sparse:
            if step.step not in facts.sends:
                facts.sends[step.step] = sends_by_host(half.source, half.target, self._desk.host, self._hosts)
            half.pieces = facts.sends[step.step]
        self._start_send(half)
        if run.last_read(move.source):
            self._shards.retire(shard, (self._desk.order,) if half.empty else ())

    def send_whole(self, step: SendStep) -> None:
        """A Get: straight to the client."""
        shard = self._shards.get(step.step)
        if shard is None or shard.layout is None:
            text = f"client {step.client} gets buffer {step.step}, which is not on this host"
            self.undoable(step.seq, text, step.step)
            return
        half = self._new(step.seq, self.sends, step.transfer, shard)
        half.source = shard.layout
        half.pieces = to_client(shard.layout, step.client, self._desk.host, self._hosts)
        self._start_send(half)

    def _start_send(self, half: Half) -> None:
        desk, shard = self._desk, half.shard
        half.empty = not half.pieces and not half.sparse
        if half.empty:
            half.state = "over"
            self._done(half, None, (desk.order,))
            return
        half.waited = self._shards.here(shard)
        sent: Cause = ("sent", half.transfer)
        shard.uses += ((half.seq, sent),)
        desk.waits.expect(sent)
        desk.waits.expect(("sending", half.transfer))
        desk.waits.when((desk.order, *half.waited), partial(self._open_send, half))

    def _open_send(self, half: Half, causes: Causes) -> None:
        if not half.sparse:
            self._open(half, half.shard.final, causes)
        elif half.shard.final is not None:
            self._spoil_sparse(half, half.shard.final, causes)
        else:
            assert half.target is not None
            half.turn("count")
            self._desk.out.append(
                CountRows(half.transfer, half.shard.buffer, half.target, causes, half.shard.layout)
            )

    def _spoil_sparse(self, half: Half, blame: Blame, causes: Causes) -> None:
        """Nobody knows who would have got rows: all are told that there are none."""
        assert half.target is not None
        half.pieces = tuple((host, 0, 0) for host in hosts_of(half.target.place, self._hosts))
        self._open(half, blame, causes)

    def _open(self, half: Half, blame: Blame | None, causes: Causes) -> None:
        half.turn("open")
        self._desk.out.append(
            OpenSend(half.transfer, half.shard.buffer, half.pieces, blame, causes, half.source, half.target)
        )
        self._desk.waits.happen(("sending", half.transfer))

    def counted(self, event: RowsCounted) -> None:
        half = self.sends.get(event.transfer)
        if half is None or half.state != "counting":
            raise Illegal(
                f"transfer {event.transfer} was counted, but is {half.state if half else 'not known'} here"
            )
        desk, causes = self._desk, (("count", event.transfer),)
        blame = desk.here(event.blame, half.program, half.node)
        if blame is not None:
            half.shard.final = half.shard.final or blame
            self._spoil_sparse(half, blame, causes)
            return
        half.pieces = event.pieces
        numbers: dict[int, int] = {}
        for receiver, _, _ in event.pieces:
            numbers[receiver] = numbers.get(receiver, 0) + 1
        report = Counted(event.transfer, desk.me, tuple(sorted(numbers.items())))
        half.said = (report,)
        desk.up(report, causes)
        self._open(half, None, causes)

    def sent(self, event: Sent) -> None:
        half = self._ending(self.sends, event.transfer, "sent")
        self._done(half, half.shard.final, (("sent", event.transfer),))
        self._desk.waits.happen(("sent", event.transfer))

    # --- receives -----------------------------------------------------------------------------------------

    def recv(self, step: RecvStep, run: Run, move: Move) -> None:
        facts, slot = run.facts, move.target
        pieces: tuple[Piece, ...] = ()
        if not move.sparse:
            if step.step not in facts.receives:
                source, target = facts.layout(move.source), facts.layout(slot)
                facts.receives[step.step] = receives_by_host(source, target, self._desk.host, self._hosts)
            pieces = facts.receives[step.step]
        source = facts.layout(move.source)
        half = self._receive(step, run.ids[slot], source, facts.layout(slot), pieces, move.sparse)
        half.shard.labels = run.kept.get(slot, ())
        if facts.plan.slots[slot].last == step.step:  # nobody reads it
            self._shards.retire(half.shard, (self._desk.order, *half.waited) if half.empty else ())

    def recv_whole(self, step: RecvStep) -> None:
        """A Put: straight from the client."""
        if step.layout is None:
            self.undoable(step.seq, f"client {step.client} puts buffer {step.step} without a layout")
            return
        pieces = from_client(step.layout, step.client, self._desk.host, self._hosts)
        half = self._receive(step, step.step, None, step.layout, pieces, False)
        half.shard.labels = ((step.client, step.name),)

    def _receive(
        self, step: RecvStep, buffer: int, source: Layout | None, layout: Layout, pieces: tuple[Piece, ...],
        sparse: bool,
    ) -> Half:  # fmt: skip
        desk = self._desk
        waited = self.room(step.after)
        empty = not pieces and not sparse
        made: Cause | None = ("recv", step.transfer)
        if empty:
            made = waited[0] if waited else None
        shard = Shard(buffer, layout, made, step.seq, foreign=made is not None)
        self._shards.add(shard)
        half = self._new(step.seq, self.recvs, step.transfer, shard)
        half.source, half.pieces, half.empty, half.waited = source, pieces, empty, waited
        if not empty:
            desk.waits.expect(("recv", step.transfer))
        desk.waits.when((desk.order, *waited), partial(self._open_recv, half, sparse))
        self._shards.retire_lost(buffer)
        return half

    def room(self, after: int) -> Causes:
        """What the memory of something still waits for: all gangs and copies of this host up to `after`.
        (Gang `after` itself may be one of other hosts: its devices need not be ours.)"""
        if after < 0:
            return ()
        earlier: list[Cause] = [("done", seq) for seq in (*self._queue.entries, *self.copies) if seq <= after]
        return tuple(done for done in earlier if self._desk.live(done[1], done))

    def _open_recv(self, half: Half, sparse: bool, causes: Causes) -> None:
        desk, shard = self._desk, half.shard
        assert shard.layout is not None
        half.turn("open")
        desk.out.append(MakeBuffer(shard.buffer, shard.layout, None, causes))
        if half.empty:
            half.turn("end")
            self._done(half, None, causes)
        else:
            desk.out.append(
                OpenRecv(
                    half.transfer,
                    half.seq,
                    shard.buffer,
                    half.pieces,
                    sparse,
                    causes,
                    half.source,
                    shard.layout,
                )
            )

    def received(self, event: Received) -> None:
        half = self._ending(self.recvs, event.transfer, "received")
        half.shard.spoil(event.blame)
        self._done(half, event.blame, (("recv", event.transfer),))
        self._desk.waits.happen(("recv", event.transfer))

    def expect(self, step: ExpectStep) -> None:
        half, desk = self.recvs.get(step.transfer), self._desk
        if half is None or half.empty:
            return
        number = dict(step.pieces).get(desk.host, 0)
        expect = partial(self._expect, step.transfer, number)
        desk.waits.when((desk.order, *self._still(half.waited)), expect)

    def _expect(self, transfer: int, number: int, causes: Causes) -> None:
        self._desk.out.append(ExpectRecv(transfer, number, causes))

    def poison(self, step: PoisonStep) -> None:
        """Both halves are dropped once they are open, so that the transfer machine knows what to answer
        for."""
        desk = self._desk
        causes: list[Cause] = [desk.order]
        recv, send = self.recvs.get(step.transfer), self.sends.get(step.transfer)
        concerned = False
        if recv is not None and not recv.empty:
            concerned = True
            causes += self._still(recv.waited)
        if send is not None and not send.empty:
            concerned = True
            sending: Cause = ("sending", step.transfer)
            if desk.live(send.seq, sending):
                causes.append(sending)
        if concerned:
            desk.waits.when(tuple(causes), partial(self._drop, step))

    def _drop(self, step: PoisonStep, causes: Causes) -> None:
        self._desk.out.append(DropTransfer(step.transfer, step.blame, causes))

    def abandon(self, seqs: tuple[int, ...], blame: Blame) -> None:
        wanted = set(seqs)
        for half in (*self.recvs.values(), *self.sends.values()):
            if half.seq in wanted and half.state != "over":
                self.poison(PoisonStep(half.transfer, blame))

    # --- copies -------------------------------------------------------------------------------------------

    def spill(self, step: SpillStep) -> None:
        shard = self._shards.get(step.buffer)
        if shard is None:
            text = f"buffer {step.buffer} is to be spilled, and is not on this host"
            self.undoable(step.seq, text, step.buffer)
            return
        desk, idle = self._desk, self._shards.idle(shard)
        half = self._copy(step.seq, shard)
        shard.user, shard.uses = -1, ((step.seq, ("done", step.seq)),)
        shard.spilled = True
        desk.waits.when((desk.order, *idle), partial(self._start_copy, half, SpillBuffer))

    def restore(self, step: RestoreStep) -> None:
        shard = self._shards.get(step.buffer)
        if shard is None:
            text = f"buffer {step.buffer} is to be restored, and is not on this host"
            self.undoable(step.seq, text, step.buffer)
            return
        desk = self._desk
        causes = (*self._shards.idle(shard), *self.room(step.after))
        half = self._copy(step.seq, shard)
        shard.user, shard.uses = -1, ()
        shard.made, shard.made_seq, shard.foreign = ("done", step.seq), step.seq, True
        shard.spilled = False
        start = partial(self._start_copy, half, RestoreBuffer)
        desk.waits.when((desk.order, *dict.fromkeys(causes)), start)

    def _copy(self, seq: int, shard: Shard) -> Half:
        half = self._new(seq, self.copies, seq, shard)
        self._desk.waits.expect(("done", seq))
        return half

    def _start_copy(self, half: Half, copy: type[SpillBuffer | RestoreBuffer], causes: Causes) -> None:
        half.turn("open")
        self._desk.out.append(copy(half.seq, half.shard.buffer, causes))

    def copied(self, event: Copied) -> None:
        half = self._ending(self.copies, event.seq, "copied")
        blame = self._desk.here(event.blame)
        half.shard.spoil(blame)
        self._done(half, blame, (("done", event.seq),))
        self._desk.waits.happen(("done", event.seq))

    # --- all ----------------------------------------------------------------------------------------------

    def _new(self, seq: int, home: dict[int, Half], key: int, shard: Shard) -> Half:
        half = Half(seq, home, key, shard)
        self._desk.records.append(half)
        return half

    def _ending(self, home: dict[int, Half], key: int, what: str) -> Half:
        half = home.get(key)
        if half is None or not half.legal("end"):
            raise Illegal(f"{key} was {what}, but is {half.state if half else 'not known'} here")
        half.turn("end")
        return half

    def _done(self, half: Half, blame: Blame | None, causes: Causes) -> None:
        report = Done(half.seq, self._desk.me, blame)
        half.said = (*half.said, report)
        self._desk.up(report, causes)

    def undoable(self, seq: int, text: str, buffer: int = -1) -> None:
        """Nobody may wait for it."""
        desk = self._desk
        record = Record(seq, "over", {}, seq)
        record.said = (Done(seq, desk.me, self._shards.missing(buffer, text, seq)),)
        desk.records.append(record)
        desk.up(record.said[0], (desk.order,))

    def _still(self, waited: Causes) -> Causes:
        live = self._desk.live
        return tuple(cause for cause in waited if live(cause[1], cause))
