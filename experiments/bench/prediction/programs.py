"""The programs of `prediction`: the computations of each case, for real and simulated devices.

Each computation states its cost. A simulated device takes that long, and a real controller's policy uses it. For timed
devices the cost is exact. For CPU devices it was measured alone, by `alone`, before any case was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from seaway.tools.calibrating import AXIS, product, step
from sim.hardware import Collective, Kernel

from .cases import Work


class Taken(msgspec.Struct, frozen=True):
    """The time of a computation alone. ns: of one execution. spread: the largest deviation of a round, as a fraction.
    cores: busy cores of one process. reference: nanoseconds of the speed reference. inline: whether the calling thread
    computed it."""

    ns: int
    spread: float
    cores: float
    reference: float
    inline: bool = False


Alone = Mapping[str, Taken]  # by `key_of`
Call = Callable[[Any], Any]


def key_of(work: Work, hosts: int, called: bool = False) -> str:
    """The key of a computation's lone time: of one more repeat within a computation, or (`called`) of one with its
    call.

    Only work that waits for peers depends on the number of hosts.
    """
    name = f"{work.op}-{work.size}@{hosts}" if work.op == "reduce" else f"{work.op}-{work.size}"
    return f"{name} called" if called else name


def taken_by(work: Work, hosts: int, alone: Alone, times: int) -> Taken:
    return alone[key_of(work, hosts, called=times == 1)]


def alone_ns(work: Work, hosts: int, alone: Alone, times: int = 1) -> int:
    if work.op == "timed":
        return times * work.size
    one, more = (alone[key_of(work, hosts, called)].ns for called in (True, False))
    return one + (times - 1) * more


def at_speed(alone: Alone, reference: float) -> Alone:
    """These times converted to another speed of the machine."""
    return {
        key: replace(one, ns=max(1, round(one.ns * reference / one.reference)), reference=reference)
        for key, one in alone.items()
    }


def operation(work: Work) -> Call:
    """The JAX function for one device."""
    return product if work.op == "matmul" else step


def repeated(work: Work, times: int) -> Call:
    """The function repeated in one computation."""
    one = operation(work)

    def fused(x: Any) -> Any:
        import jax

        return jax.lax.fori_loop(0, times, lambda _, y: one(y), x)

    return one if times == 1 else fused


def computation(work: Work, home: Any, alone: Alone, times: int = 1) -> Any:
    """A computation of Seaway with its cost. `times`: repeats fused into one. Timed devices wait for no peers, so
    theirs is not collective."""
    import seaway as sw

    name = name_of(work, times)
    if work.op == "timed":
        lasts = alone_ns(work, home.devices, alone, times)
        return sw.synthetic(name, devices=home, duration=f"{lasts}ns", collective=False)
    axis = AXIS if work.op == "reduce" and home.devices > 1 else None
    function = repeated(work, times) if axis or work.op == "matmul" else _add
    cost = kernel(work, home.devices, alone, times)
    return sw.pmap(function, axis, devices=home, cost=cost, name=name)


def kernel(work: Work, devices: int, alone: Alone, times: int) -> Kernel:
    """The cost of a computation. For work that waits for peers, the time that its process used a core is computing, and
    the rest is the links' (`hop_ns`)."""
    taken, name = taken_by(work, devices, alone, times), name_of(work, times)
    if work.op != "reduce" or devices == 1:
        lasts = alone_ns(work, devices, alone, times)
        return Kernel(name, max(1, lasts), inline=taken.inline, cores=max(1.0, taken.cores))
    own = own_ns(taken)
    first = max(own, own_ns(taken_by(work, devices, alone, 1)))
    moved = Collective("all-reduce", 4, count=times, hidden=own)
    return Kernel(name, first + own * (times - 1), (moved,), inline=taken.inline)


def own_ns(taken: Taken) -> int:
    return max(1, round(taken.ns * min(1.0, taken.cores)))


def hop_ns(work: Work, devices: int, alone: Alone, times: int, cores: int) -> int:
    """The link latency with which the model's sum takes the measured time. The model has 2 log2(n) latencies in a sum.

    If there were more hosts than cores, hosts also waited for cores, which the model adds by itself.
    """
    taken = taken_by(work, devices, alone, times)
    links = taken.ns - own_ns(taken) * (-(-devices // cores) - 1)
    return max(0, round(links / (2 * (devices - 1).bit_length())))


def name_of(work: Work, times: int) -> str:
    return f"{work.op}-{work.size}x{times}"


def _add(x: Any) -> Any:
    """The reduce work on a single device: only the add."""
    return x + 1


def content(work: Work, devices: int) -> Any:
    if work.op == "timed":
        return np.float32(0)
    rows = work.size if work.op == "matmul" else 0
    return np.ones((devices, rows, rows), np.float32) if rows else np.zeros(devices, np.float32)
