"""The halves of transfers that this host takes part in, and the copies of buffers to host memory and back.

A send opens when its source is ready, a receive when its memory is here. What then happens, and in which order, is
decided by the transfer machine. It answers every open half exactly once, with `Sent` or `Received`, and a dropped
half too. So whether a transfer's data or its poison came first is decided in one place, and not here.

Neighbours: `executor` brings steps and answers; `local_buffers` has the sources and targets.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from .. import protocol as p
from ..model import Hosts, Illegal, Layout, Move, receives_by_host, sends_by_host
from ..transfer import ALL, Piece, from_client, hosts_of, to_client
from .causes import PendingCauses
from .host_state import Causes, HostMove, HostRun, HostState, LocalBuffer, own_blame
from .local_buffers import HostBuffers

KEPT = 64  # gets whose pieces are remembered: a loop reads arrays of a few kinds


class Moves(msgspec.Struct, eq=False):
    _state: HostState
    _causes: PendingCauses
    _buffers: HostBuffers
    _hosts: Hosts
    _got: dict[tuple[Layout, int, int, int], tuple[Piece, ...]] = {}  # by layout, client, host, shard

    # --- sends --------------------------------------------------------------------------------------------

    def send(self, step: p.SendStep, run: HostRun, move: Move) -> None:
        state, plan = self._state, run.plan
        here = {slot: state.buffers.alone(run.ids[slot]) for slot in move.sources}
        found = {slot: buffer for slot, buffer in here.items() if buffer is not None}
        if len(found) < len(here):
            missing = next(slot for slot in here if slot not in found)
            text = f"move {move.name!r} of run {run.id} reads a buffer that is not on this host"
            self.undoable(step.seq, text, run.ids[missing])
            self._let_go(run, found, state.order)
            return
        half = self._new("send", step.seq, step.transfer, *[found[slot] for slot in move.sources])
        half.program, half.node, half.sparse = plan.plan.program, move.name, move.sparse
        half.sources, half.targets = plan.layouts(move.sources), plan.layouts(move.targets)
        if not move.sparse:
            key = step.step, state.host
            if key not in plan.sends:
                plan.sends[key] = sends_by_host(half.sources, half.targets, state.host, self._hosts)
            half.pieces = plan.sends[key]
        self._start_send(half, found.values())
        self._let_go(run, found, state.order if half.empty else ())

    def _let_go(self, run: HostRun, read: Mapping[int, LocalBuffer], causes: Causes) -> None:
        for slot, buffer in read.items():
            if run.last_read(slot):
                self._buffers.retire(buffer, causes)

    def send_whole(self, step: p.SendStep) -> None:
        """A Get: straight to the client."""
        buffer = self._state.buffers.alone(step.step)
        if buffer is None or buffer.layout is None:
            text = f"client {step.client} gets buffer {step.step}, which is not on this host"
            self.undoable(step.seq, text, step.step)
            return
        half = self._new("send", step.seq, step.transfer, buffer)
        half.sources, half.shard = (buffer.layout,), step.shard
        # Only one host has the shard. It may be any of those for which this executor stands.
        sender = self._state.host if step.shard == ALL else step.hosts[0][0]
        half.pieces = self._pieces_for(step.client, buffer.layout, sender, step.shard)
        self._start_send(half, (buffer,))

    def _pieces_for(self, client: int, layout: Layout, host: int, shard: int) -> tuple[Piece, ...]:
        key = layout, client, host, shard
        found = self._got.get(key)
        if found is None:
            if len(self._got) >= KEPT:
                self._got.clear()
            found = self._got[key] = to_client(layout, client, host, self._hosts, shard)
        return found

    def _start_send(self, half: HostMove, buffers: Collection[LocalBuffer]) -> None:
        order = self._state.order
        half.empty = not half.pieces and not half.sparse
        if half.empty:
            half.state = "over"
            self._done(half, None, order)
            return
        sent: p.Cause = ("sent", half.key)
        for buffer in buffers:
            half.waited += self._buffers.here(buffer)
            buffer.uses += ((half.seq, sent),)
        if len(half.waited) > 1:
            half.waited = tuple(dict.fromkeys(half.waited))
        self._causes.expect(sent)
        self._causes.expect(("sending", half.key))
        self._causes.when((*order, *half.waited), self._open_send, half)

    def _open_send(self, half: HostMove, causes: Causes) -> None:
        blame = half.blame
        if not half.sparse:
            self._open(half, blame, causes)
        elif blame is not None:
            self._spoil_sparse(half, blame, causes)
        else:
            ((buffer,), (target,)) = half.buffers, half.targets
            half.turn("count")
            self._state.out.append(p.CountRows(half.key, buffer.id, target, causes, buffer.layout))

    def _spoil_sparse(self, half: HostMove, blame: p.Blame, causes: Causes) -> None:
        """Nobody knows which hosts would have got rows: all are told that there are none."""
        half.pieces = tuple([(host, 0, 0) for host in hosts_of(half.targets[0].place, self._hosts)])
        self._open(half, blame, causes)

    def _open(self, half: HostMove, blame: p.Blame | None, causes: Causes) -> None:
        half.turn("open")
        buffers = tuple([buffer.id for buffer in half.buffers])
        self._state.out.append(p.OpenSend(half.key, buffers, half.pieces, blame, causes, half.sources, half.targets))
        self._causes.happen(("sending", half.key))

    def counted(self, event: p.RowsCounted) -> None:
        state, half = self._state, self._state.sends.get(event.transfer)
        if half is None or half.state != "counting":
            raise Illegal(f"transfer {event.transfer} was counted, but is {half.state if half else 'not known'} here")
        causes = (("count", event.transfer),)
        blame = own_blame(state, event.blame, half.program, half.node)
        if blame is not None:
            (buffer,) = half.buffers
            buffer.final = buffer.final or blame
            self._spoil_sparse(half, blame, causes)
            return
        half.pieces = event.pieces
        numbers: dict[int, int] = {}
        for receiver, _, _ in event.pieces:
            numbers[receiver] = numbers.get(receiver, 0) + 1
        report = p.PieceCounts(event.transfer, state.members, tuple(sorted(numbers.items())))
        half.said = (report,)
        state.out.append(p.ToController(report, causes))
        self._open(half, None, causes)

    def sent(self, event: p.Sent) -> None:
        sent: p.Cause = ("sent", event.transfer)
        half = self._ending(self._state.sends, event.transfer, "sent")
        self._done(half, half.blame, (sent,))
        self._causes.happen(sent)

    def source_lost(self, event: p.SourceLost) -> None:
        """The send goes on without this array: so one send finds all that are lost, and its end fails the move. What
        this host has sent to itself may have arrived by now, as it seemed: then the copy is lost with it."""
        state, chunk = self._state, event.chunk
        blame = own_blame(state, event.blame) or event.blame
        send, here = state.sends.get(chunk.transfer), chunk.receiver == chunk.sender
        for half in (send, state.receives.get(chunk.transfer) if here else None):
            if half is None or half.buffers[event.array].final or not (here or half.state == "open"):
                continue
            half.buffers[event.array].spoil(blame)
            report = p.HostFault(state.host, -1, blame, buffer=half.buffers[event.array].id)
            half.said = (*half.said, report)
            state.out.append(p.ToController(report, (("unread", half.key),)))

    # --- literals -----------------------------------------------------------------------------------------

    def literal(self, ident: int, layout: Layout, contents: bytes, after: int) -> None:
        """Contents that came with the call. As a receive, the buffer is made when there is room, which may be
        behind gangs that still run."""
        state = self._state
        room = self.room(after) if after >= 0 else ()
        if not room:
            state.buffers[ident] = LocalBuffer(ident, layout, None, -1)
            state.out.append(p.MakeBuffer(ident, layout, contents, state.order))
            return
        made: p.Cause = ("made", ident)
        state.buffers[ident] = LocalBuffer(ident, layout, made, after, True)
        self._causes.expect(made)
        self._causes.when((*state.order, *room), self._make_literal, (ident, layout, contents))

    def _make_literal(self, made: tuple[int, Layout, bytes], causes: Causes) -> None:
        self._state.out.append(p.MakeBuffer(*made, causes))
        self._causes.happen(("made", made[0]))

    # --- receives -----------------------------------------------------------------------------------------

    def receive(self, step: p.RecvStep, run: HostRun, move: Move) -> None:
        plan = run.plan
        sources, targets = plan.layouts(move.sources), plan.layouts(move.targets)
        pieces: tuple[Piece, ...] = ()
        if not move.sparse:
            here = step.step, self._state.host
            if here not in plan.receives:
                plan.receives[here] = receives_by_host(sources, targets, self._state.host, self._hosts)
            pieces = plan.receives[here]
        half = self._receive(step, [run.ids[slot] for slot in move.targets], sources, targets, pieces, move.sparse)
        for slot, buffer in zip(move.targets, half.buffers, strict=True):
            buffer.labels = run.labels.get(slot, ())
            if plan.plan.slots[slot].last == step.step:  # nobody reads it
                self._buffers.retire(buffer, (*self._state.order, *half.waited) if half.empty else ())

    def receive_whole(self, step: p.RecvStep) -> None:
        """A Put: straight from the client."""
        if step.layout is None:
            self.undoable(step.seq, f"client {step.client} puts buffer {step.step} without a layout")
            return
        pieces = from_client(step.layout, step.client, self._state.host, self._hosts)
        half = self._receive(step, (step.step,), (), (step.layout,), pieces, False)
        half.buffers[0].labels = ((step.client, step.name),)

    def _receive(
        self, step: p.RecvStep, idents: Sequence[int], sources: tuple[Layout, ...], targets: tuple[Layout, ...],
        pieces: tuple[Piece, ...], sparse: bool,
    ) -> HostMove:  # fmt: skip
        state, waited = self._state, self.room(step.after)
        empty = not pieces and not sparse
        made: p.Cause | None = ("recv", step.transfer)
        if empty:
            made = waited[0] if waited else None
        ends = zip(idents, targets, strict=True)
        buffers = [LocalBuffer(ident, target, made, step.seq, made is not None) for ident, target in ends]
        for buffer in buffers:
            state.buffers[buffer.id] = buffer
        half = self._new("receive", step.seq, step.transfer, *buffers)
        half.sources, half.pieces, half.sparse, half.empty, half.waited = sources, pieces, sparse, empty, waited
        if not empty:
            self._causes.expect(("recv", step.transfer))
        self._causes.when((*state.order, *waited), self._open_receive, half)
        self._buffers.retire_lost(idents)
        return half

    def room(self, after: int) -> Causes:
        """What the memory of something still waits for: all gangs and copies of this host up to `after`.
        (Gang `after` itself may be one of other hosts: its devices need not be ours.)"""
        if after < 0:
            return ()
        state = self._state
        earlier: list[p.Cause] = [("done", seq) for seq in (*state.gangs, *state.copies) if seq <= after]
        return tuple([done for done in earlier if self._causes.live(done[1], done)])

    def _open_receive(self, half: HostMove, causes: Causes) -> None:
        out, targets = self._state.out, tuple([buffer.layout for buffer in half.buffers if buffer.layout is not None])
        half.turn("open")
        out += [
            p.MakeBuffer(buffer.id, layout, None, causes) for buffer, layout in zip(half.buffers, targets, strict=True)
        ]
        if half.empty:
            half.turn("end")
            self._done(half, None, causes)
        else:
            buffers = tuple([buffer.id for buffer in half.buffers])
            out.append(p.OpenRecv(half.key, half.seq, buffers, half.pieces, half.sparse, causes, half.sources, targets))

    def received(self, event: p.Received) -> None:
        received: p.Cause = ("recv", event.transfer)
        half = self._ending(self._state.receives, event.transfer, "received")
        for buffer in half.buffers:
            buffer.spoil(event.blame)
        self._done(half, event.blame, (received,))
        self._causes.happen(received)

    def expect(self, step: p.ExpectStep) -> None:
        """A sparse receive is told how many pieces will come."""
        state, half = self._state, self._state.receives.get(step.transfer)
        if half is None or half.empty:
            return
        number = dict(step.pieces).get(state.host, 0)
        causes = (*state.order, *self._still(half.waited))
        self._causes.when(causes, self._expect, (step.transfer, number))

    def _expect(self, expected: tuple[int, int], causes: Causes) -> None:
        self._state.out.append(p.ExpectRecv(*expected, causes))

    def poison(self, step: p.PoisonStep) -> None:
        """Both halves are dropped once they are open, so that the transfer machine knows what to answer
        for."""
        state = self._state
        causes: list[p.Cause] = [*state.order]
        receive, send = state.receives.get(step.transfer), state.sends.get(step.transfer)
        concerned = False
        if receive is not None and not receive.empty:
            concerned = True
            causes += self._still(receive.waited)
        if send is not None and not send.empty:
            concerned = True
            sending: p.Cause = ("sending", step.transfer)
            if self._causes.live(send.seq, sending):
                causes.append(sending)
        if concerned:
            self._causes.when(tuple(causes), self._drop, step)

    def _drop(self, step: p.PoisonStep, causes: Causes) -> None:
        self._state.out.append(p.DropTransfer(step.transfer, step.blame, causes))

    def abandon(self, seqs: tuple[int, ...], blame: p.Blame) -> None:
        wanted = set(seqs)
        for half in (*self._state.receives.values(), *self._state.sends.values()):
            if half.seq in wanted and half.state != "over":
                self.poison(p.PoisonStep(half.key, blame))

    # --- copies -------------------------------------------------------------------------------------------

    def spill(self, step: p.SpillStep) -> None:
        state, buffer = self._state, self._state.buffers.alone(step.buffer)
        if buffer is None:
            text = f"buffer {step.buffer} is to be spilled, and is not on this host"
            self.undoable(step.seq, text, step.buffer)
            return
        idle, again = self._buffers.idle(buffer), buffer.spilled
        copy, done = self._copy("spill", step.seq, buffer)
        buffer.user, buffer.uses = -1, ((step.seq, done),)
        if not again:
            buffer.spilled, buffer.on_disk = True, step.to_disk
        waits = (*idle, *self._disk_free(copy))
        self._causes.when((*state.order, *dict.fromkeys(waits)), self._is_spilled if again else self._start_copy, copy)

    def _is_spilled(self, copy: HostMove, causes: Causes) -> None:
        """It was before. A controller that has started again makes sure, where not all hosts had heard of it."""
        copy.turn("open")
        copy.turn("end")
        self._done(copy, copy.blame, causes)
        self._causes.happen(("done", copy.seq))

    def restore(self, step: p.RestoreStep) -> None:
        state, buffer = self._state, self._state.buffers.alone(step.buffer)
        if buffer is None:
            text = f"buffer {step.buffer} is to be restored, and is not on this host"
            self.undoable(step.seq, text, step.buffer)
            return
        causes = (*self._buffers.idle(buffer), *self.room(step.after))
        copy, done = self._copy("restore", step.seq, buffer)
        causes = (*causes, *self._disk_free(copy))
        buffer.user, buffer.uses = -1, ()
        buffer.made, buffer.made_seq, buffer.foreign = done, step.seq, True
        buffer.spilled = buffer.on_disk = False
        self._causes.when((*state.order, *dict.fromkeys(causes)), self._start_copy, copy)

    def _copy(self, kind: str, seq: int, buffer: LocalBuffer) -> tuple[HostMove, p.Cause]:
        done: p.Cause = ("done", seq)
        self._causes.expect(done)
        return self._new(kind, seq, seq, buffer), done

    def _disk_free(self, copy: HostMove) -> Causes:
        """What a copy to or from the disk waits for: the one before, since together they would be no faster."""
        state, last = self._state, self._state.last_on_disk
        if not copy.buffers[0].on_disk:
            return ()
        copy.disk, state.last_on_disk = True, ("done", copy.seq)
        return (last,) if last is not None and self._causes.live(last[1], last) else ()

    def _start_copy(self, copy: HostMove, causes: Causes) -> None:
        copy.turn("open")
        command = p.SpillBuffer if copy.kind == "spill" else p.RestoreBuffer
        self._state.out.append(command(copy.seq, copy.buffers[0].id, causes, copy.disk))

    def copied(self, event: p.Copied) -> None:
        done: p.Cause = ("done", event.seq)
        copy = self._ending(self._state.copies, event.seq, "copied")
        blame = own_blame(self._state, event.blame)
        if event.no_disk:
            copy.buffers[0].on_disk = False
            report = p.HostFault(self._state.host, -1, p.Blame("disk", event.no_disk))
            self._state.out.append(p.ToController(report, (done,)))
        copy.buffers[0].spoil(blame)
        self._done(copy, blame, (done,))
        self._causes.happen(done)

    # --- all ----------------------------------------------------------------------------------------------

    def _new(self, kind: str, seq: int, key: int, *buffers: LocalBuffer) -> HostMove:
        state = self._state
        move = HostMove(kind, seq, key, buffers)
        table = state.sends if kind == "send" else state.receives if kind == "receive" else state.copies
        table[key] = move
        state.records.append(move)
        return move

    def _ending(self, table: dict[int, HostMove], key: int, what: str) -> HostMove:
        move = table.get(key)
        if move is None:
            raise Illegal(f"{key} was {what}, which is not known here")
        move.turn("end")
        return move

    def _done(self, move: HostMove, blame: p.Blame | None, causes: Causes) -> None:
        report = p.Done(move.seq, self._state.members, blame)
        move.said = (*move.said, report)
        self._state.out.append(p.ToController(report, causes))

    def undoable(self, seq: int, text: str, ident: int = -1) -> None:
        """Nobody may wait for it."""
        state = self._state
        report = p.Done(seq, state.members, self._buffers.missing(ident, text, seq))
        state.records.append(HostMove("none", seq, seq, (), "over", (report,)))
        state.out.append(p.ToController(report, state.order))

    def _still(self, waited: Causes) -> Causes:
        return tuple([cause for cause in waited if self._causes.live(cause[1], cause)])
