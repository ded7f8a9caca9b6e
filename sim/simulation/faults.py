"""Faults that are announced before a run, so that islands whose hosts will differ remember what that takes.

A cohort stands for hosts that behave alike. A slow host still behaves like the others; a host that crashes, is cut
off, leaves or fails alone does not. `Simulation(faults=...)` takes a list of `Fault`, for example from `drawn`. When
one falls due that makes hosts differ, they are simulated one by one (`takeover`) until its effects are over
(`regrouping`). A fault on a cohort for which none is still announced is refused.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from random import Random

import msgspec

from core.model import Cluster, Impossible, beginning

# Each kind of fault -> whether it makes the hosts of an island differ.
KINDS = {
    "slow": False, "crash_host": True, "return_host": True, "leave_host": True, "lose_device": True, "cut": True,
    "fail_gang": True, "crash_client": True, "drain_host": True, "move_client": False, "suspend_client": False,
    "resume_client": False, "grow": True,
}  # fmt: skip


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault at a given time, or what an operator does then. `whom`: a host; for `lose_device` a device, for what
    befalls a client its name; for `grow` the first of the hosts that come then, and are not there before."""

    at: int  # nanoseconds
    what: str
    whom: int | str
    factor: float = 1.5  # for "slow"
    duration: int | None = None  # for "slow" and "cut": the fault is repaired after this time
    name: str = ""  # for "fail_gang": the gang's name

    def __post_init__(self) -> None:
        if self.what not in KINDS:
            near = get_close_matches(self.what, KINDS, 1, 0)
            raise ValueError(f"no such fault: {self.what!r}; did you mean {near[0]!r}?")
        if self.at < 0:
            raise ValueError(f"{self.what} at {self.at} ns: time begins at 0")
        if isinstance(self.whom, str) != self.what.endswith("_client"):
            raise ValueError(f"{self.what} befalls a {'client, by name' if isinstance(self.whom, int) else 'number'}")


def divided(faults: Iterable[Fault], cluster: Cluster) -> dict[int, int]:
    """The islands whose hosts will not behave alike after a fault, and when the first one falls due."""
    found: dict[int, int] = {}
    for fault in faults:
        if not KINDS[fault.what]:
            continue
        if isinstance(fault.whom, str):
            islands = list(range(len(cluster.islands)))
        elif fault.what == "lose_device":
            islands = [cluster.island_of_device(fault.whom).index]
        else:
            islands = [cluster.island_of_host(fault.whom).index]
        for island in islands:
            found[island] = min(fault.at, found.get(island, fault.at))
    return found


def known_after(faults: Iterable[Fault], cluster: Cluster) -> list[Cluster]:
    """What the controller knows of a cluster at first, and after each time that it grows; the last is all of it. Raises
    Impossible if a cluster cannot grow so."""
    firsts = sorted((fault.at, int(fault.whom)) for fault in faults if fault.what == "grow")
    hosts = [whom for _, whom in firsts]
    if hosts != sorted(set(hosts)):
        numbers = ", ".join(map(str, hosts))
        raise Impossible(f"it grows by the hosts from {numbers} on, in this order: they come by number")
    return [*(beginning(cluster, first) for first in hosts), cluster]


def drawn(
    seed: int, cluster: Cluster, number: int, before: int, kinds: tuple[str, ...] = ("crash_host",)
) -> list[Fault]:
    """`number` random faults of these kinds, uniform over hosts and over the time before `before`."""
    rng = Random(f"faults {seed}")
    found = []
    for _ in range(number):
        what = rng.choice(kinds)
        whom = rng.randrange(cluster.devices if what == "lose_device" else cluster.hosts)
        found.append(Fault(rng.randrange(before), what, whom))
    return sorted(found, key=lambda fault: (fault.at, fault.what, str(fault.whom)))
