"""What an agent needs of its host's devices: the interface of `pjrt` and of `timed`.

Methods are called from the agent's loop, in the order of core's commands; each returns at once. What comes of them is
told by `post`, from any thread: Reformed, CodeReady, Finished, LaunchFailed, Copied, RowsCounted, DeviceLost.

    launch      enqueue on this host's devices of the gang, from one thread, in the order of the calls; inputs are
                futures. After LaunchFailed nothing more is enqueued until `abandon` names that seq.
    make        room, or a literal's contents; `free` gives it back, behind what was enqueued before.
    shards      contents for others: waits until they are there, so it is called in a copying thread.
    fill        contents from others, into the room that `make` has made; once, before whatever reads it is launched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from core.model import Hosts, Layout, Plan
from core.protocol import effects as e

from .gang_times import Stamps

Post = Callable[[e.Event], None]
Index = tuple[int, ...]  # of a shard: one number a dimension
Array = np.ndarray[Any, Any]


class World:
    """Of an epoch of an island: whom a host joins, and as whom."""

    __slots__ = ("address", "devices", "epoch", "hosts", "me")

    def __init__(
        self, epoch: int, address: str, hosts: Sequence[int], me: int, devices: Mapping[int, Sequence[int]]
    ) -> None:
        self.epoch = epoch
        self.address = address  # of the coordination service; "" where a host is alone
        self.hosts = tuple(hosts)  # members, in the order of their ranks
        self.me = me  # this host
        self.devices = dict(devices)  # host -> its devices' numbers in the cluster


class About:
    """What a host says of itself when it enrols."""

    __slots__ = ("devices", "kind", "memory", "platform")

    def __init__(self, platform: str, kind: str, devices: int, memory: int) -> None:
        self.platform = platform  # "cpu", "cuda", "tpu", "timed"
        self.kind = kind  # "TPU v4", "NVIDIA H200", ...
        self.devices = devices
        self.memory = memory  # bytes of each device that programs may use; 0: not limited


class Devices(Protocol):
    post: Post  # set by the agent
    hosts: Hosts | None  # set by the agent: which devices each host of the cluster has
    failed: Callable[[BaseException], None]  # set by the agent: an error of ours, in any thread
    stamps: Stamps  # when gangs were enqueued here, and seen to end; by a clock that the agent may replace

    def about(self) -> About: ...

    def reform(self, command: e.Reform, world: World) -> None: ...

    def compile(self, command: e.CompileCode, plan: Plan, blobs: Mapping[str, bytes]) -> None:
        """`blobs`: by content hash, all that the code's parts name."""

    def prepare(self, command: e.Prepare, plan: Plan) -> None: ...

    def launch(self, command: e.Launch, plan: Plan) -> None: ...

    def abandon(self, seqs: Sequence[int]) -> None: ...

    def make(self, command: e.MakeBuffer) -> None: ...

    def free(self, buffer: int) -> None: ...

    def spill(self, command: e.SpillBuffer) -> None: ...

    def restore(self, command: e.RestoreBuffer) -> None: ...

    def count(self, command: e.CountRows) -> None: ...

    def shards(self, buffer: int) -> Mapping[Index, Array]:
        """The distinct shards of it that this host has, in host memory. Blocks; any thread."""

    def fill(self, buffer: int, layout: Layout, shards: Mapping[Index, Array]) -> None:
        """All contents of this host's shards of it have come."""

    def spoil(self, buffer: int, reason: str) -> None:
        """What came for it cannot be used: who reads it is launched with placeholders, and ends with this reason."""

    def usage(self) -> Mapping[str, int]:
        """For people: bytes in buffers, how many buffers, programs outstanding, ..."""

    def close(self) -> None:
        """End threads; give everything back."""
