"""Prices a computation for a real session: a `Signature` becomes core's `Computation`, with a code hash and a cost.

Policies and the bounds of waits use the cost. It is the first of these that is known: the user's (`cost=`); the median
of recorded executions; an estimate from the function's flops and bytes, with round figures for the platform.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from core.model import Computation

from ...graph import Signature
from .exported_code import ExportedCode, code_of, warn_of_nans

LEAST = 1_000  # nanoseconds: no launch takes less
UNKNOWN = 1_000_000  # nanoseconds for a computation that cannot be estimated
SEEN = 3  # executions needed before recorded times are used: the first is often slow


class Speed(NamedTuple):
    """One device's speed in round figures, used only until executions have been recorded."""

    flops: float
    hbm: float  # bytes a second


SPEEDS = {"cpu": Speed(2e10, 1e10), "cuda": Speed(2e14, 2e12), "rocm": Speed(2e14, 2e12), "tpu": Speed(2e14, 1e12)}
Recorded = Callable[[], Mapping[str, tuple[int, int]]]  # computation's name -> (executions, their median time)
Keep = Callable[[ExportedCode], None]


class ConnectedPricing:
    """`platforms`: the platforms of the session's islands; "timed" devices need a cost and no code. `keep`: stores code
    where hosts find it. `recorded`: returns what executions took so far."""

    def __init__(self, platforms: tuple[str, ...], keep: Keep, recorded: Recorded = dict) -> None:
        self._real = tuple(sorted(each for each in platforms if each != "timed"))
        self._timed = "timed" in platforms
        self._keep, self._recorded = keep, recorded
        self._codes: dict[Signature, str] = {}
        self.prices: dict[Signature, tuple[Computation, str]] = {}  # with the cost's source

    def __call__(self, signature: Signature) -> Computation:
        key = code = ""
        if self._real and (signature.function is not None or signature.document or not self._timed):
            key = code = self._code(signature)
        cost, source = self._cost(signature)
        kernel = signature.kernel
        made = Computation(
            signature.name, key or f"{signature.key}@{cost}", cost * signature.steps,
            0 if kernel is None else kernel.temp, signature.collective, code, signature.steps,
            tuple((on, time * signature.steps) for on, time in (kernel.durations if kernel else ())) or msgspec.UNSET,
        )  # fmt: skip
        self.prices[signature] = made, source
        return made

    def _code(self, signature: Signature) -> str:
        known = self._codes.get(signature)
        if known is None:
            if not signature.document:
                warn_of_nans(signature.name)
            exported = code_of(signature, self._real)
            self._keep(exported)
            known = self._codes[signature] = exported.name
        return known

    def _cost(self, signature: Signature) -> tuple[int, str]:
        kernel = signature.kernel
        if kernel is not None and (kernel.duration or not self._real):
            return max(1, kernel.duration), kernel.source
        seen = self._recorded().get(signature.name)
        if seen is not None and seen[0] >= SEEN:
            return max(1, seen[1]), "recorded"
        work = signature.work() if signature.work is not None else None
        if work is None:
            return (LEAST if kernel is not None else UNKNOWN), "assumed"
        times = [
            max(work.flops / speed.flops, work.hbm_bytes / speed.hbm)
            for speed in (SPEEDS[each] for each in self._real or ("cpu",))
        ]
        return max(LEAST, round(max(times) * 1e9)), "estimate"

    def table(self) -> list[dict[str, Any]]:
        """Rows for `session.costs()`, one a computation."""
        return [
            {
                "computation": signature.name, "devices": signature.slice.devices, "duration_ns": made.cost,
                "source": source, "temp_bytes": made.temp, "collective": made.collective, "code": made.code[:12],
            }
            for signature, (made, source) in self.prices.items()
        ]  # fmt: skip
