"""Random numbers as pure functions: equal (seed, source, number) give an equal draw, in whatever order they are
asked.

The state of a generator would depend on the order of the draws, and so on how the model is formulated. These
functions have no state: an island of 512 state machines and one vector of 512 clocks see the same jitter. Scalars and
numpy vectors go through the same 64-bit arithmetic.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
MASK = (1 << 64) - 1
COMPUTE = 1 << 49  # and the number of a host: the source of how long its devices take
_STEP, _ONE, _TWO = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_U = np.uint64
_U_ONE, _U_TWO = _U(_ONE), _U(_TWO)
_11, _27, _30, _31, _32 = _U(11), _U(27), _U(30), _U(31), _U(32)


class Noise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much a simulation varies at random. All zero: every operation takes exactly what the data sheet says."""

    latency: int = 0  # nanoseconds: each message takes up to this much longer, uniformly distributed
    # each host's devices take up to this fraction longer for a gang, uniformly distributed, and a collective as long as
    # those of the slowest host
    compute: float = 0.0
    stragglers: float = 0.0  # this fraction of all hosts has slow devices ...
    straggler_factor: float = 1.2  # ... whose gangs always take this many times as long

    def __post_init__(self) -> None:
        if self.latency < 0 or self.compute < 0:
            raise ValueError("noise: `latency` and `compute` are not negative")
        if not 0 <= self.stragglers <= 1:
            raise ValueError(f"noise: `stragglers` is a fraction of the hosts, not {self.stragglers}")
        if self.straggler_factor < 1:
            raise ValueError(f"noise: `straggler_factor` is at least 1, not {self.straggler_factor}")


def mix(x: int) -> int:
    """The finaliser of splitmix64."""
    x = ((x ^ (x >> 30)) * _ONE) & MASK
    x = ((x ^ (x >> 27)) * _TWO) & MASK
    return x ^ (x >> 31)


def key(seed: int, source: int) -> int:
    """The key of one source of randomness: a link, a host or an island."""
    return mix((mix((seed + _STEP) & MASK) + source * _STEP) & MASK)


def below(limit: int, source: int, number: int) -> int:
    """A uniform integer in [0, limit); `limit` has at most 32 bits."""
    return (mix((source + number * _STEP) & MASK) >> 32) * limit >> 32


def fraction(source: int, number: int) -> float:
    """A uniform float in [0, 1)."""
    return (mix((source + number * _STEP) & MASK) >> 11) / (1 << 53)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`mix` for a vector, which it changes."""
    x ^= x >> _30
    x *= _U_ONE
    x ^= x >> _27
    x *= _U_TWO
    x ^= x >> _31
    return x


def keys(seed: int, source: Ints) -> NDArray[np.uint64]:
    """`key` for a vector of sources."""
    first = _U(mix((seed + _STEP) & MASK))
    return _mix(first + source.astype(np.uint64) * _U(_STEP))


def fractions(sources: NDArray[np.uint64], number: int) -> NDArray[np.float64]:
    """`fraction` for a vector of sources."""
    drawn = _mix(sources + _U(number * _STEP & MASK))
    drawn >>= _11
    return drawn / float(1 << 53)


def each_below(limit: int, sources: NDArray[np.uint64], number: int) -> Ints:
    """`below` for a vector of sources."""
    drawn = _mix(sources + _U(number * _STEP & MASK))
    drawn >>= _32
    drawn *= _U(limit)
    drawn >>= _32
    return drawn.view(np.int64)
