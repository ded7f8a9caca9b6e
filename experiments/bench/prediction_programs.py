"""The programs of `prediction`: what each case's computations are, on real devices and simulated ones alike.

What a computation costs is stated in it: that is what a simulated device takes, and what real controllers' policies go
by. Devices that take the time they are told are told it exactly; what a CPU device takes was measured by itself, before
any case was drawn. Neighbours: `prediction_measuring` calls these, `prediction_alone` measures them by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from sim.hardware import Collective, Kernel

from .prediction_cases import Work

AXIS = "device"


class Taken(msgspec.Struct, frozen=True):
    """By a computation that was by itself. ns: of one execution. spread: the farthest round from that, as a part of it.
    cores: that were busy meanwhile, of one process. reference: of the machine's speed, nanoseconds. inline: the thread
    that called for it has computed it."""

    ns: int
    spread: float
    cores: float
    reference: float
    inline: bool = False


Alone = Mapping[str, Taken]  # by `key_of`
Call = Callable[[Any], Any]


def key_of(work: Work, hosts: int, called: bool = False) -> str:
    """Under which its time by itself is known: of one more in the same computation; or of one that is called, which
    wakes up whom it needs. Only what waits for peers depends on how many these are."""
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
    """As these would take while the machine has that speed."""
    return {
        key: replace(one, ns=max(1, round(one.ns * reference / one.reference)), reference=reference)
        for key, one in alone.items()
    }


def operation(work: Work) -> Call:
    """On one device; JAX."""
    return _multiply if work.op == "matmul" else _reduce


def _multiply(x: Any) -> Any:
    return x @ x / x.shape[0]


def _reduce(x: Any) -> Any:
    import jax

    lax: Any = jax.lax
    return x - lax.pmean(x, AXIS) + 1


def repeated(work: Work, times: int) -> Call:
    """So often in one computation."""
    one = operation(work)

    def fused(x: Any) -> Any:
        import jax

        return jax.lax.fori_loop(0, times, lambda _, y: one(y), x)

    return one if times == 1 else fused


def computation(work: Work, home: Any, alone: Alone, times: int = 1) -> Any:
    """`times`: fused into one. Devices that take the time they are told wait for no peer, and so it is said."""
    import seaway as sw

    name = name_of(work, times)
    if work.op == "timed":
        lasts = alone_ns(work, home.devices, alone, times)
        return sw.synthetic(name, devices=home, duration=lasts, collective=False)
    axis = AXIS if work.op == "reduce" and home.devices > 1 else None
    function = repeated(work, times) if axis or work.op == "matmul" else _add
    cost = kernel(work, home.devices, alone, times)
    return sw.pmap(function, axis, devices=home, cost=cost, name=name)


def kernel(work: Work, devices: int, alone: Alone, times: int) -> Kernel:
    """What waits for peers computes for as long as its process had a core; the rest of its time by itself is the links'
    (`hop_ns`): that, less what is computed meanwhile."""
    taken, name = taken_by(work, devices, alone, times), name_of(work, times)
    if work.op != "reduce" or devices == 1:
        lasts = alone_ns(work, devices, alone, times)
        return Kernel(name, max(1, lasts), cores=max(1.0, taken.cores), inline=taken.inline)
    own = own_ns(taken)
    first = max(own, own_ns(taken_by(work, devices, alone, 1)))
    moved = Collective("all-reduce", 4, count=times, hidden=own)
    return Kernel(name, first + own * (times - 1), (moved,), inline=taken.inline)


def own_ns(taken: Taken) -> int:
    return max(1, round(taken.ns * min(1.0, taken.cores)))


def hop_ns(work: Work, devices: int, alone: Alone, times: int, cores: int) -> int:
    """A link's latency by which such a sum takes what it took: the model has twice the logarithm of them in one. Hosts
    that were more than cores have waited for each other there, as they do in the model."""
    taken = taken_by(work, devices, alone, times)
    links = taken.ns - own_ns(taken) * (-(-devices // cores) - 1)
    return max(0, round(links / (2 * (devices - 1).bit_length())))


def name_of(work: Work, times: int) -> str:
    return f"{work.op}-{work.size}x{times}"


def _add(x: Any) -> Any:
    """What is left of a sum where there is nobody to add."""
    return x + 1


def content(work: Work, devices: int) -> Any:
    if work.op == "timed":
        return np.float32(0)
    rows = work.size if work.op == "matmul" else 0
    return np.ones((devices, rows, rows), np.float32) if rows else np.zeros(devices, np.float32)


def chained(works: Sequence[Any]) -> Call:
    """One program, that calls one after the other; of one, that by itself."""
    import seaway as sw

    if len(works) == 1:
        alone: Call = works[0]
        return alone

    def chain(x: Any) -> Any:
        for work in works:
            x = work(x)
        return x

    made: Call = sw.program(chain)
    return made
