"""`poisson`: arrivals whose times do not depend on one another, drawn from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import inf, log1p
from random import Random

from ..units import Time
from ..units import duration as nanoseconds
from .open_loop import Arrival, Arrivals

Shares = str | Sequence[str] | Mapping[str, float]
MOST = 10_000_000  # arrivals that are drawn at once


def poisson(
    rate: float,
    time: Time,
    *,
    seed: int = 0,
    clients: Shares = "load",
    names: Shares = "request",
    devices: int = 0,
    duration: Time = 0,
) -> Arrivals:
    """Draw a Poisson process: `rate` arrivals a second on average, for a time such as "10s".

    seed: the same seed gives the same arrivals. clients, names: one; or several, which are as likely as one another; or
    a dict that says how likely each is. devices, duration: of each, if they are jobs.

        >>> load = sw.workload.poisson(1000, "10s", seed=7, clients={"ann": 3, "bob": 1})
        >>> load == sw.workload.poisson(1000, "10s", seed=7, clients={"ann": 3, "bob": 1})
        True
    """
    until = nanoseconds(time, "sw.workload.poisson: time")
    if not _positive(rate):
        raise ValueError(f"sw.workload.poisson(rate={rate!r}): arrivals a second, more than 0")
    if rate * until / 1e9 > MOST:
        raise ValueError(
            f"sw.workload.poisson: {rate:g} a second for {until / 1e9:g} s are {rate * until / 1e9:,.0f} arrivals; at "
            f"most {MOST:,}"
        )
    lasts = nanoseconds(duration, "sw.workload.poisson: duration")
    who, what = _DrawnNames("clients", clients), _DrawnNames("names", names)
    rng = Random(f"poisson {seed}")
    found, at = [], 0.0
    while (at := at - log1p(-rng.random()) / rate * 1e9) < until:
        found.append(Arrival(int(at), who.of(rng), what.of(rng), devices, lasts))
    return Arrivals(found)


def _positive(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 < number < inf


class _DrawnNames:
    """Names that are drawn, each as often as its share says."""

    def __init__(self, option: str, given: Shares) -> None:
        shares = (
            {given: 1.0} if isinstance(given, str)
            else dict(given) if isinstance(given, Mapping)
            else dict.fromkeys(given, 1.0)
        )  # fmt: skip
        if not shares or not all(shares):
            raise ValueError(f"sw.workload.poisson({option}={given!r}): a name, several, or a dict of shares")
        if not all(map(_positive, shares.values())):
            raise ValueError(f"sw.workload.poisson({option}={given!r}): shares are numbers above 0")
        self._names, self._ends = list(shares), list(accumulate(shares.values()))

    def of(self, rng: Random) -> str:
        if len(self._names) == 1:
            return self._names[0]
        return rng.choices(self._names, cum_weights=self._ends)[0]
