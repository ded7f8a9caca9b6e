"""Tracks what a host receives into its shards of a buffer, and checks whether that makes them complete.

Contents travel as (digest, layout of the source). A dense move is checked geometrically, once for each pair of layouts:
the boxes of its pieces must cover each target shard exactly, and each box must be inside the shard that it comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from core.model.plan import Layout
from core.model.resharding import receives

from . import contents

Content = tuple[int, Layout | None]  # digest and layout of the source; None for whole shards from a client

Keys = tuple[tuple[int, int], ...]  # (sender, piece)


class ClusterHosts:
    """The devices of each host, in the form that `core.model.resharding` needs."""

    def __init__(self, host_of: Callable[[int], int], devices_of: Callable[[int], range]) -> None:
        self._host_of = host_of
        self._devices_of = devices_of

    def host_of(self, device: int) -> int:
        return self._host_of(device)

    def devices_of(self, host: int) -> range:
        return self._devices_of(host)


class Filling:
    def __init__(
        self, transfer: int, host: int, target: Layout, pieces: tuple[tuple[int, int, int], ...],
        *, sparse: bool, hosts: ClusterHosts, sparse_source: Callable[[int], Content | None],
    ) -> None:  # fmt: skip
        self.transfer = transfer
        self.host = host
        self.target = target
        self.expected = {(sender, piece): nbytes for sender, piece, nbytes in pieces}
        self.got: dict[tuple[int, int], int] = {}
        self.sparse = sparse
        self.broken = ""
        self._contents: dict[Content, None] = {}
        self._hosts = hosts
        self._sparse_source = sparse_source

    def arrive(self, sender: int, piece: int, offset: int, nbytes: int, content: Content) -> None:
        got = self.got.get((sender, piece), 0)
        if offset != got:
            self.broken = self.broken or f"offset {offset} of piece {piece} from {sender} after {got} bytes"
        self.got[sender, piece] = got + nbytes
        self._contents[content] = None

    def digest(self) -> int:
        """Return the array's digest if all of it has come, once, from one source; else a wrong one."""
        whole = self._is_whole()
        if not whole:
            return contents.torn("transfer", self.transfer, self.host)
        content = next(iter(self._contents), None) or self._sparse_source(self.transfer)
        if content is None:
            return contents.torn("empty", self.transfer, self.host)
        return contents.exchanged(content[0]) if self.sparse else content[0]

    def _is_whole(self) -> bool:
        if self.broken or len(self._contents) > 1:
            return False
        content = next(iter(self._contents), None)
        if self.sparse:
            return self._all_rows(content or self._sparse_source(self.transfer))
        if self.got != {key: nbytes for key, nbytes in self.expected.items() if nbytes} or content is None:
            return False
        source, pieces = content[1], tuple(piece for _, piece in self.expected)
        if source is None:
            return _whole_shards(self.target, self._hosts.devices_of(self.host), pieces)
        return tuple(sorted(self.expected)) == _pieces(source, self.target, self.host, self._hosts)

    def _all_rows(self, content: Content | None) -> bool:
        if content is None or content[1] is None:
            return not self.got
        mine = set(contents.virtual(self.target, self._hosts.devices_of(self.host)))
        width = self.target.place.size
        wanted = {
            source * width + target: contents.row_bytes(content[0], source, target)
            for source, target in contents.rows(content[0], content[1], self.target)
            if target in mine
        }
        return {piece: nbytes for (_, piece), nbytes in self.got.items()} == wanted


@lru_cache(maxsize=4096)
def _whole_shards(target: Layout, mine: range, pieces: tuple[int, ...]) -> bool:
    """Whether every device gets its whole shard."""
    known = contents.shards(target)
    given = {known[piece] for piece in pieces if piece in known}
    here = [contents.boxes(target)[index] for index in contents.virtual(target, mine)]
    return len(set(pieces)) == len(pieces) and all(box in given for box in here if contents.volume(box))


@lru_cache(maxsize=4096)
def _pieces(source: Layout, target: Layout, host: int, hosts: ClusterHosts) -> tuple[tuple[int, int], ...] | None:
    """Return (sender, piece) of all that this host gets in a dense move, or None if the contents would be wrong."""
    found = receives(source, target, host, hosts)
    taken, wanted = contents.boxes(source), contents.boxes(target)
    boxes = {
        piece.number: tuple((low, low + size) for low, size in zip(piece.start, piece.shape, strict=True))
        for piece in found
    }
    for piece in found:
        device = contents.devices(source.place)[piece.source]
        if hosts.host_of(device) != piece.sender or piece.receiver != host:
            return None
        if not contents.inside(boxes[piece.number], taken[piece.source]):
            return None
    for index in contents.virtual(target, hosts.devices_of(host)):
        parts = [boxes[piece.number] for piece in found if index in piece.targets]
        if not contents.covers(parts, wanted[index]):
            return None
    return tuple(sorted((piece.sender, piece.number) for piece in found))
