"""`poisson` and `poisson_jobs`: arrivals whose times do not depend on one another, drawn from a seed."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import exp, inf, log, log1p
from random import Random

import msgspec

from ..units import Nanoseconds, Time
from ..units import duration as nanoseconds
from .jobs import Job, Jobs
from .open_loop import Arrival, Arrivals

Shares = str | Sequence[str] | Mapping[str, float]
MOST = 10_000_000  # arrivals that are drawn at once


def poisson(rate: float, time: Time, *, seed: int = 0, clients: Shares = "load", names: Shares = "request") -> Arrivals:
    """Draw a Poisson process: `rate` arrivals a second on average, for a time such as "10s".

    seed: the same seed gives the same arrivals. clients, names: one; or several, which are as likely as one another; or
    a dict that says how likely each is.

        >>> load = sw.workload.poisson(1000, "10s", seed=7, clients={"ann": 3, "bob": 1})
        >>> load == sw.workload.poisson(1000, "10s", seed=7, clients={"ann": 3, "bob": 1})
        True
    """
    who, what = _WeightedNames("poisson: clients", clients), _WeightedNames("poisson: names", names)
    rng = Random(f"poisson {seed}")
    return Arrivals(Arrival(at, who.of(rng), what.of(rng)) for at in _times(rng, rate, time, "poisson"))


def poisson_jobs(
    rate: float,
    time: Time,
    *,
    seed: int = 0,
    users: Shares = "load",
    devices: int | Mapping[int, float] = 1,
    duration: Time | tuple[Time, Time] = "10min",
    step: Time = "1s",
) -> Jobs:
    """Draw jobs that arrive as a Poisson process: `rate` of them an hour on average, for a time such as "24h".

    users: as `clients` of `poisson`. devices: of each; or a dict that says how likely each number is, as
    {1: 0.6, 8: 0.3, 64: 0.1}. duration: exponential with this mean; or from one time to another, each order of
    magnitude as likely, as ("1min", "10h"). step: of which it consists; a job has at least one.

        >>> jobs = sw.workload.poisson_jobs(30, "24h", seed=1, devices={8: 2, 64: 1}, duration=("1min", "2h"))
        >>> len(jobs), sorted({job.devices for job in jobs})
        (711, [8, 64])
    """
    who, rng = _WeightedNames("poisson_jobs: users", users), Random(f"poisson jobs {seed}")
    sizes = {devices: 1.0} if isinstance(devices, int) else dict(devices)
    wide = _WeightedNames("poisson_jobs: devices", {str(size): share for size, share in sizes.items()})
    each = nanoseconds(step, "sw.workload.poisson_jobs: step")
    ends = duration if isinstance(duration, tuple) else (duration,)
    low, *high = (nanoseconds(end, "sw.workload.poisson_jobs: duration") for end in ends)
    if min(low, each, *high) < 1 or len(high) > 1:
        raise ValueError(
            f"sw.workload.poisson_jobs(duration={duration!r}, step={step!r}): times above 0, one or two of them"
        )
    found = []
    for at in _times(rng, rate, time, "poisson_jobs", "an hour"):
        lasts = low * exp(rng.random() * log(high[0] / low)) if high else -log1p(-rng.random()) * low
        user, size = who.of(rng), int(wide.of(rng))
        found.append(
            Job(at=Nanoseconds(at), user=user, devices=size, step=Nanoseconds(each), steps=max(1, round(lasts / each)))
        )
    return Jobs(msgspec.structs.replace(job, name=f"job{number}") for number, job in enumerate(found))


def _times(rng: Random, rate: float, time: Time, who: str, each: str = "a second") -> Iterator[int]:
    """Drawn one by one, between what else is drawn."""
    until = nanoseconds(time, f"sw.workload.{who}: time")
    if not _positive(rate):
        raise ValueError(f"sw.workload.{who}(rate={rate!r}): arrivals {each}, more than 0")
    apart = (3600e9 if each == "an hour" else 1e9) / rate
    if until / apart > MOST:
        raise ValueError(f"sw.workload.{who}: {rate:g} {each} are {until / apart:,.0f} arrivals; at most {MOST:,}")
    at = 0.0
    while (at := at - log1p(-rng.random()) * apart) < until:
        yield int(at)


def _positive(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 < number < inf


class _WeightedNames:
    """Names that are drawn, each as often as its share says."""

    def __init__(self, option: str, given: Shares) -> None:
        shares = (
            {given: 1.0} if isinstance(given, str)
            else dict(given) if isinstance(given, Mapping)
            else dict.fromkeys(given, 1.0)
        )  # fmt: skip
        if not shares or not all(shares):
            raise ValueError(f"sw.workload.{option}: {given!r} is not a name, several, or a dict of shares")
        if not all(map(_positive, shares.values())):
            raise ValueError(f"sw.workload.{option}: {given!r}: shares are numbers above 0")
        self._names, self._ends = list(shares), list(accumulate(shares.values()))

    def of(self, rng: Random) -> str:
        if len(self._names) == 1:
            return self._names[0]
        return rng.choices(self._names, cum_weights=self._ends)[0]
