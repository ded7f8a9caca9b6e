"""The physical program: `compile` makes a `Plan` from a `Program` once its slices are bound to devices.

A plan has one step for each node and each inserted transfer, whatever the number of devices. It is the wire
format too: the controller sends it once to the hosts of each island that it touches (`compile.cut`), and a run
of the plan is then a few integers. A plan names buffers by slot. A run keeps slot s under the buffer id
`header.base + s`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .place import Place
from .program import Sharding, SliceSpec, Value


class Layout(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """How one logical array is laid out: shape and dtype, its place, and its sharding over the place's mesh."""

    shape: tuple[int, ...]
    dtype: str
    place: Place
    mesh: tuple[int, ...]
    sharding: Sharding

    def __deepcopy__(self, memo: dict[int, Any]) -> Layout:
        return self  # it is immutable


def laid_out(value: Value, spec: SliceSpec, place: Place) -> Layout:
    """The layout of a value on its slice, which lies at this place."""
    sharding = value.sharding
    if not sharding.mesh:
        return Layout(value.shape, value.dtype, place, spec.mesh_shape, sharding)
    # A layout has its mesh itself, so layouts that are equal compare equal.
    return Layout(value.shape, value.dtype, place, sharding.mesh, Sharding(sharding.dims))


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """One logical buffer of a run. `nbytes` is what it takes on *each* device of its place (the largest shard).

    A buffer with `keep` is freed when its holders release it. A buffer with `senders` is freed when its last
    read has ended. Any other buffer is free for the gangs that come after gang `last` in the devices' order.
    `last` is the last gang that reads it, or its maker if no gang reads it, or -1 for an argument without reader.
    """

    layout: Layout
    nbytes: int
    maker: int  # the step that makes it; -1 for an argument
    takes: int = -1  # the slot whose memory it takes over (donation), or -1
    arg: int = -1  # the argument's index, or -1
    keep: bool = False  # a result: it outlives the run until its holders release it
    last: int = -1  # also -1 if the order alone does not say when it is free: with `keep`, or with `senders`
    senders: tuple[int, ...] = ()  # the moves and exchanges that read it


class Gang(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """One execution of a computation on all devices of its place."""

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
    node: int  # index into Program.nodes; -1 for a gang that reshards another one's input
    steps: int = 1  # as in Computation; `cost` is that of all of them


class Move(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A transfer from slots `sources`, all on the same devices, to as many slots `targets`, all on other ones. A sparse
    move is an Exchange of one array; what a Reshard, or a gang's inputs, need to be elsewhere is not sparse."""

    name: str
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    sparse: bool
    node: int  # the Exchange or Reshard, or the node that reads the targets


class Code(msgspec.Struct, frozen=True, array_like=True):
    """Code that hosts compile: a computation, or a resharding ("reshard:...") between two layouts of one place.

    Every gang that uses the code has the place and the layouts of gang `step`, so a host compiles it once.
    """

    key: str
    name: str
    step: int = 0
    code: str = ""  # content hash under which hosts find it


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """A program bound to devices: its steps in traced order, the buffers they use and the code they run.

    `after[i]` lists the steps that must have *entered* an order before step i may enter. A plan that is cut for
    one island keeps all indices; entries that its hosts do not need are blank.
    """

    id: int
    program: str
    codes: tuple[Code, ...]
    slots: tuple[Slot, ...]
    steps: tuple[Gang | Move, ...]
    after: tuple[tuple[int, ...], ...]
    results: tuple[int, ...]  # slots
