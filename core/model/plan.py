"""The physical program: what `compile` makes of a `Program` once its slices are bound. Still one entry a
node.

A plan is the wire format too: it is sent once to the hosts of each island it touches (`compile.cut`), and a
run of it is then a few integers. Buffers are named by slot; run r keeps slot s under the id `header.base +
s`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .place import Place
from .program import Sharding


class Layout(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """Where and how one logical array lies: shape and type, its place, and its sharding over the place's
    mesh."""

    shape: tuple[int, ...]
    dtype: str
    place: Place
    mesh: tuple[int, ...]
    sharding: Sharding

    def __deepcopy__(self, memo: dict[int, Any]) -> Layout:
        return self  # nobody can change it


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """One logical buffer of a run. `nbytes` is what it takes on *each* device of its place (the largest
    shard).

    When it dies: a kept one when its holders let go; one with `senders` when its last read has really ended;
    any other when gang `last` is behind it in its devices' order. `last` is the last gang to read it, or its
    maker if none does, or -1 for an argument that nobody reads.
    """

    layout: Layout
    nbytes: int
    maker: int  # step that makes it; -1 for an argument
    takes: int = -1  # slot whose memory it takes over (donation), or -1
    arg: int = -1  # argument index, or -1
    keep: bool = False  # a result: outlives the run, until its holders let go
    last: int = -1  # -1 too where the order alone does not say when it dies: kept, or read by moves
    senders: tuple[int, ...] = ()  # moves and exchanges that read it


class Gang(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """One computation on all devices of its place. `node` indexes Program.nodes, -1 for a resharding gang."""

    name: str
    computation: int  # index into Plan.codes
    place: Place
    inputs: tuple[int, ...]  # slots
    outputs: tuple[int, ...]
    donated: tuple[int, ...]  # slots among the inputs
    cost: int
    temp: int
    collective: bool
    irregular: bool
    node: int


class Move(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A point-to-point resharding from `source` to `target` slot (other devices); sparse: an Exchange."""

    name: str
    source: int
    target: int
    sparse: bool
    node: int  # Exchange node, or the consumer for which it was inserted; -1 for a result's move


class Part(msgspec.Struct, frozen=True, array_like=True):
    """One of the computations that were fused. Values count up: the gang's inputs, then each part's outputs
    in turn."""

    key: str
    code: str
    name: str
    inputs: tuple[int, ...]  # values
    outputs: int  # how many


class Code(msgspec.Struct, frozen=True, array_like=True):
    """What a host compiles: a computation by content, or "reshard:..." between two layouts of one place.

    Every gang that uses it has the place and the layouts of gang `step`, so a code is compiled once for one
    place.
    """

    key: str
    name: str
    step: int = 0
    code: str = ""  # content hash under which hosts find it
    parts: tuple[Part, ...] = ()  # not empty: these in turn, as one
    results: tuple[int, ...] = ()  # values that come out of the parts


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """`steps` in traced order. `after[i]`: steps that must have *entered* an order before step i may.

    What is cut for one island has the same indices; entries that are not its hosts' affair are blank.
    """

    id: int
    program: str
    codes: tuple[Code, ...]
    slots: tuple[Slot, ...]
    steps: tuple[Gang | Move, ...]
    after: tuple[tuple[int, ...], ...]
    results: tuple[int, ...]  # slots
