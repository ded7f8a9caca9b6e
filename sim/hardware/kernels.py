"""What a computation costs wherever it runs: its own time on one device, and its collectives, which have no price
yet.

Core's IR carries one number, the expected cost, which policies and bounds use. A simulated device looks up the kernel
by the computation's key, and prices the collectives on the devices that the gang was given: the same program
costs more on a slice that does not wrap. A computation whose key is unknown takes its expected cost.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from core.model import Place

Kind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute"]


class Collective(msgspec.Struct, frozen=True):
    """One collective operation of a kernel.

    `groups`: one group as nested (size, stride) over the gang's logical devices, major first; () is one group
    of all devices. `[256,8]<=[2048]` in HLO is ((8, 1),); groups along the major axis of the same mesh are ((256,
    8),).

    `hidden`: nanoseconds of the kernel's own work that the compiler scheduled beside each execution of this
    collective. The collective then costs max(0, its time on the links - hidden). This assumes that computing and
    communicating do not slow each other down.
    """

    kind: Kind
    nbytes: int  # bytes of the operand, on each device
    groups: tuple[tuple[int, int], ...] = ()
    count: int = 1
    hidden: int = 0


class Kernel(msgspec.Struct, frozen=True):
    name: str
    duration: int  # nanoseconds on each device, without its collectives
    collectives: tuple[Collective, ...] = ()
    temp: int = 0  # bytes of scratch memory on each device
    flops: float = 0.0  # on each device; 0: unknown
    hbm_bytes: float = 0.0
    # where a device computes on its host's cores: the enqueuing thread computes it, and enqueues nothing meanwhile
    inline: bool = False
    cores: float = 1.0  # where a device computes on its host's cores: how many it keeps busy, on average
    # of the kinds of devices on which it takes another time than `duration`; if there are any, it runs on no others
    durations: tuple[tuple[str, int], ...] = ()
    source: str = "stated"  # "tpu-compiler", "roofline", "stated", "recorded"

    def on(self, kind: str) -> Kernel:
        """The kernel on devices of this kind."""
        return msgspec.structs.replace(self, duration=dict(self.durations).get(kind, self.duration), durations=())


class GangWork(NamedTuple):
    """What gangs do: a kernel, once for each of their steps, on the devices of a place."""

    kernel: Kernel
    place: Place
    steps: int
