"""What a computation costs on hardware, wherever it will run: its own time, and its collectives, unpriced.

Core's IR carries one number, the expected cost, which is what policies and bounds go by. A simulated device
looks its kernel up by the computation's key and prices the collectives on the devices that the gang was given:
the same program costs more on a slice that does not wrap. A key that is not known costs the expected number.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute"]


class Collective(msgspec.Struct, frozen=True):
    """`groups`: one group as nested (size, stride) over the gang's logical devices, major first; () is one group
    of them all. `[256,8]<=[2048]` in HLO is ((8, 1),); groups along the major axis of the same mesh, ((256, 8),).

    `hidden`: nanoseconds of the kernel's own work that its compiler scheduled beside it, each time, for it alone. What
    it costs is what is left: max(0, its time on the links - hidden). Assumed is that computing and communicating
    do not slow each other down.
    """

    kind: Kind
    nbytes: int  # of the operand, on each device
    groups: tuple[tuple[int, int], ...] = ()
    count: int = 1
    hidden: int = 0


class Kernel(msgspec.Struct, frozen=True):
    name: str
    duration: int  # nanoseconds on each device, without its collectives
    collectives: tuple[Collective, ...] = ()
    temp: int = 0  # bytes of scratch on each device
    flops: float = 0.0  # on each device; 0: not known
    hbm_bytes: float = 0.0
    cores: float = 1.0  # that it keeps busy, where a device computes on its host's own
    inline: bool = False  # there, the thread that enqueues it computes it, and enqueues nothing meanwhile
    source: str = "stated"  # "tpu-compiler", "roofline", "stated", "recorded"
