"""Views on this host: buffers that share the memory of others.

A view is made when the contents of all its sources are here, so a reader of the view waits for nothing else. If one of
them is spoilt, so is the view, and nothing is made (`VoidView`). The controller frees a view before it frees or
gives away what the view shares. Such steps wait on the devices for all use of the view, which is entered as use of
its sources when the view is retired (`HostBuffers.retire`). Before the controller spills what a view shares, it folds
the view: the host has no array for it then, and remembers it (a controller that restarts is told of it), until it is
made again.

Neighbours: `executor` brings the step; `local_buffers` has the sources.
"""

import msgspec

from ..model import Hosts, Range, spans, virtual_index
from ..protocol import Cause, FoldStep, MakeView, ViewStep, VoidView
from .causes import PendingCauses
from .host_state import Causes, HostState, LocalBuffer
from .local_buffers import HostBuffers


class LocalViews(msgspec.Struct, eq=False):
    _state: HostState
    _causes: PendingCauses
    _buffers: HostBuffers
    _hosts: Hosts

    def read(self, step: ViewStep) -> None:
        state = self._state
        if not spans.overlap(step.hosts, state.members):
            return
        view = LocalBuffer(step.buffer, step.layout, None, -1, labels=((step.client, step.name),))
        sources: list[LocalBuffer] = []
        view.shares = tuple([source for _, source in self._shards(step)])
        for ident in dict.fromkeys(view.shares):
            source = state.buffers.alone(ident)
            if source is not None:
                sources.append(source)
            else:
                text = f"view {step.buffer} shares buffer {ident}, which is not on this host"
                view.spoil(self._buffers.missing(ident, text, -1))
        view.sources = tuple(sources)
        state.buffers[step.buffer] = view
        causes = tuple(dict.fromkeys(cause for source in sources for cause in self._buffers.here(source)))
        if causes:
            made: Cause = ("made", step.buffer)
            view.made, view.foreign = made, True
            view.made_seq = max([source.made_seq for source in sources])
            for source in sources:
                self._buffers.used(source, ((view.made_seq, made),))
            self._causes.expect(made)
        self._causes.when((*state.order, *causes), self._make, (view, step))
        self._buffers.retire_lost((step.buffer,))

    def fold(self, step: FoldStep) -> None:
        state, view = self._state, self._state.buffers.alone(step.buffer)
        if view is None or view.spilled:  # this host has no part of it; or a controller that restarted makes sure
            return
        self._buffers.retire(view, state.order)
        folded = LocalBuffer(view.id, view.layout, None, -1, labels=view.labels, spilled=True, void=True)
        folded.sources, folded.shares = view.sources, view.shares
        folded.spoil(view.final)
        state.buffers[view.id] = folded

    def _make(self, subject: tuple[LocalBuffer, ViewStep], causes: Causes) -> None:
        view, step = subject
        for source in view.sources:
            view.spoil(source.final)
        if view.final is None:
            shards = tuple(self._shards(step))
            self._state.out.append(MakeView(view.id, step.layout, shards, causes))
        else:
            view.void = True
            self._state.out.append(VoidView(view.id, causes))
        if view.made is not None:
            self._causes.happen(view.made)

    def _shards(self, step: ViewStep) -> list[tuple[int, int]]:
        """(device, the buffer that the view shares there) of each of its devices on this host."""
        found: list[tuple[int, int]] = []
        for device in self._hosts.devices_of(self._state.host):
            index = virtual_index(step.layout.place, device)
            if index >= 0:
                found.append((device, _source(step.sources, index)))
        return found


def _source(sources: tuple[int | Range, ...], index: int) -> int:
    """The source of this index; a range names several that follow one another. -1: the message does not say it."""
    for source in sources:
        first, count = (source, 1) if isinstance(source, int) else (source.first, source.count)
        if index < count:
            return first + index
        index -= count
    return -1
