"""Which arrays go with a slice: those that lie where it lies, or on a part of it. Arrays do not say whose they are.

Neighbours: `relocation`, which asks when a slice is held.
"""

from ..memory import Buffers
from ..model import Place, device_spans, spans
from ..slices import Binding, Resources
from .state import ControllerModule


class SliceArrays(ControllerModule):
    _buffers: Buffers
    _resources: Resources

    def places(self, client: int, there: Place, names: tuple[str, ...]) -> list[Place]:
        """Where arrays lie that go with these slices, which lie there: just there, or on some of those devices."""
        mine = [b for b in self._resources.bindings() if b.session == client]
        found = dict.fromkeys(buffer.layout.place for buffer in self._buffers if buffer.client == client)
        return [place for place in (there, *found) if place == there or self._has(there, names, place, mine)]

    def _has(self, there: Place, names: tuple[str, ...], place: Place, mine: list[Binding]) -> bool:
        """Whether arrays at this place go with these slices, and not with another one of the client (`mine`): one that
        lies just there, or has a part there, or was bound before and has these devices, too."""
        if any(place in (b.place, b.target) for b in mine):
            return False
        for b in mine:
            parts = self._resources.parts(b.session, b.spec.name)
            if any(self._resources.place(b.session, spec.name) == place for spec in parts):
                return b.spec.name in names
        devices = device_spans(place)
        for b in mine:
            for whole in (b.place, b.target):
                if whole and whole.island == place.island and spans.within(devices, device_spans(whole)):
                    return b.spec.name in names and whole == there
        return False
