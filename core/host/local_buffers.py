"""This host's shards of logical buffers: when their contents are here, whether they are spoilt, when they are
free.

Names follow the stream: a buffer can be named from the step that makes it until the step that reads it last,
donates it, or frees it. Memory follows the devices: it lives until those steps have ended.

Neighbours: `launches`, `host_moves` and `executor` name buffers and retire them; `causes` holds each free back until
the buffer is idle.
"""

from collections.abc import Iterator, Sequence

import msgspec

from ..protocol import Blame, Cause, FreeBuffer, Held
from .causes import PendingCauses
from .host_state import Causes, HostState, LocalBuffer, Use, fault


class HostBuffers(msgspec.Struct, eq=False):
    _state: HostState
    _causes: PendingCauses

    def missing_input(self, ident: int, seq: int) -> LocalBuffer:
        """A gang launches whatever its inputs are. One that is not here is spoilt."""
        buffer = LocalBuffer(ident, None, None, -1)
        buffer.spoil(self.missing(ident, f"gang {seq} reads buffer {ident}, which is not on this host", seq))
        return buffer

    def all_inputs(self, first: int, count: int, seq: int) -> list[LocalBuffer]:
        """Several inputs of a gang. Those that are not here are spoilt."""
        found: list[LocalBuffer] = []
        at = first
        for buffer in [*self._state.buffers.over(first, count), None]:
            end = buffer.id if buffer is not None else first + count
            found += [self.missing_input(ident, seq) for ident in range(at, end)]
            if buffer is not None:
                found.append(buffer)
                at = buffer.id + buffer.count
        return found

    def missing(self, ident: int, text: str, seq: int) -> Blame:
        """Why it is not here: it was lost, or the controller made a mistake."""
        return self._state.lost.get(ident) or fault(self._state, text, seq)

    def here(self, buffer: LocalBuffer) -> Causes:
        """What its contents still wait for."""
        made, state = buffer.made, self._state
        if made is not None and (buffer.made_seq >= state.settled or made in state.pending):
            return (made,)
        return ()

    def idle(self, buffer: LocalBuffer) -> Causes:
        """What ends all use of it that was ordered so far. Every use waits for the contents, so the last uses are
        enough."""
        return tuple([cause for _, cause in self._uses(buffer)]) or self.here(buffer)

    def _uses(self, buffer: LocalBuffer) -> tuple[Use, ...]:
        """Those that may still be going on."""
        found: tuple[Use, ...] = ()
        last, state = buffer.user, self._state
        if last >= 0:
            user: Cause = ("done", last)
            if last >= state.settled or user in state.pending:
                found = ((last, user),)
        for use in buffer.uses:
            if self._causes.live(*use):
                found = (*found, use)
        return found

    def used(self, buffer: LocalBuffer, uses: tuple[Use, ...]) -> None:
        """By something that is no gang that reads it."""
        buffer.uses = (*[use for use in buffer.uses if self._causes.live(*use)], *uses)

    def retire(self, buffer: LocalBuffer, causes: Causes) -> None:
        """Nothing later in the stream names it: free it when it is idle."""
        if self._state.buffers.drop(buffer.id) is not None:
            for source in buffer.sources:  # all use of a view is use of what it shares
                self.used(source, self._uses(buffer))
            for cause in self.idle(buffer):
                if cause not in causes:
                    causes = (*causes, cause)
            self._causes.when(causes, self._free, buffer)

    def _free(self, buffer: LocalBuffer, causes: Causes) -> None:
        if not buffer.void:
            self._state.out.append(FreeBuffer(buffer.id, causes, buffer.count))

    def drop(self, idents: tuple[int, ...], blame: Blame) -> None:
        """They were lost with a host, or nobody owns them; so are all views of them here. A message that was lost with
        its path may still come and name them, and may be the one that frees such a view."""
        gone = dict.fromkeys(idents)
        for _, buffer in sorted(self._state.buffers.items()) if gone else ():  # a view behind what it shares
            if any(source.id in gone for source in buffer.sources):
                gone[buffer.id] = None
        self._state.lost.update(dict.fromkeys(gone, blame))
        self.retire_lost(tuple(gone))

    def retire_lost(self, idents: Sequence[int]) -> None:
        """Those of them that were lost before they were made; views before what they share."""
        state = self._state
        for ident in sorted(idents, reverse=True):
            buffer = state.buffers.alone(ident)
            if buffer is not None and ident in state.lost:
                self.retire(buffer, state.order)

    def held(self) -> Iterator[Held]:
        """From this a controller that restarts learns what its clients hold. Buffers that were promised to nobody
        (client 0) are left behind by runs whose other steps will never come: they are named so that they can be
        freed."""
        pending = self._state.pending
        for buffer in self._state.buffers.values():
            made = buffer.made
            restored = buffer.foreign and made == ("done", buffer.made_seq)  # its contents are here, and come back
            ready = buffer.final is None and (made is None or made not in pending or restored)
            if buffer.layout is not None:
                for at, layout in enumerate(buffer.layouts or (buffer.layout,)):
                    for client, name in buffer.labels or ((0, 0),):
                        named = name + at if client else 0
                        yield Held(
                            buffer.id + at, client, named, layout, ready, buffer.spilled, buffer.shares, buffer.on_disk
                        )
