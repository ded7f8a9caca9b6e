"""`calibrate`: opens sessions, runs workloads in them, and makes a `Calibration` of what was measured.

A session of one host and a session of all hosts together show what a host costs. In the latter, contents are also moved
between hosts, and devices compute. `cli.calibrating` prints the result.
"""

import os
import platform as python_platform
import time
import tomllib
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from backend.scratch_folder import ScratchFolder
from core.controller import Config
from core.transfer import CHUNK

from . import device_costs as devices
from . import stall_costs, this_machine, transfer_costs, workloads
from .calibration import LIKE, Calibration, Figure, figures
from .costs import FittedCosts, costs_of, sources
from .fitting import FitRow, FittedCost, fit, middle
from .pace import paced
from .watching import WatchSample

Say = Callable[[str], object]
GANG = "device, a gang"
MODEL = ("client_call", "client_note", "receive", "send", "step", "relay_step", "enqueue", "sum", "literal", "complete",
         "complete_more")  # fmt: skip


class Effort(NamedTuple):
    """How much is run. repeats, seconds: of each workload. bound: seconds after which a session's workloads are not
    repeated. moves: transfers of each of `sizes`."""

    repeats: int
    seconds: float
    bound: float
    moves: int
    sizes: tuple[int, ...]
    waiting: float  # seconds of calls that are waited for
    played: int  # such calls, simulated


MANY = {"timed": (1, 6), "cpu": (1, 3, 4)}  # hosts of further sessions; on "cpu" each is a process
FULL = Effort(4, 0.2, 20.0, 3, transfer_costs.SIZES, 3.0, 400)
QUICK = Effort(2, 0.04, 4.0, 2, transfer_costs.QUICK, 0.5, 100)


class Measurements(NamedTuple):
    """Measurements of the sessions. reached: None if devices do not compute. hops: empty for one host. waited:
    nanoseconds of calls that were waited for one by one. sums: over all devices, of sessions of several sizes."""

    samples: list[WatchSample]
    hops: list[transfer_costs.Hop]
    waited: list[float]
    reached: devices.Reached | None
    sums: list[devices.SumOver]


def calibrate(
    platform: str = "cpu", hosts: int = 2, devices_per_host: int = 1, quick: bool = False, say: Say = print
) -> Calibration:
    """Measure this machine, in under two minutes. `quick`: in a quarter of the time, less exactly.

    platform, hosts, devices_per_host: as for `sw.local`. say: called with texts about progress.
    """
    if not Path("/proc/self/schedstat").exists():
        raise NotImplementedError("calibrating needs CPU times by thread, which only Linux has (/proc/PID/schedstat)")
    effort = QUICK if quick else FULL
    number, known = this_machine.cores()
    with ScratchFolder() as folder, paced(Path(folder)) as pace:
        found = _sessions(platform, hosts, devices_per_host, quick, effort, say)
        speed = pace.all()
    costs = costs_of(found.samples)
    made = [
        Figure("speed", speed.value, "ns", speed.spread, "CPU of a fixed piece of Python, all the while"),
        Figure("cores", number, "", 0.0, known, "machine.cores"),
        *_host_memory(),
        *_of_costs(costs, platform == "timed"),
        *_of_gangs(found.samples),
        *_of_transfers(found.hops, costs),
        *_of_network(this_machine.copied()),
        *_of_devices(found.reached),
        *_of_sums(found.sums, across=hosts > 1),
    ]
    draft = Calibration(
        platform, hosts, devices_per_host, max([hosts, *([] if quick else others(platform, hosts))]), number,
        Config().fanout, _machine(platform, number), tuple(made), (),
    )  # fmt: skip
    made += _of_ends(draft, found.hops)
    made += _of_stalls(draft._replace(figures=tuple(made)), found, effort.played)
    return draft._replace(figures=tuple(made), missing=tuple(_missing(made, platform, hosts, found)))


def _sessions(platform: str, hosts: int, each: int, quick: bool, effort: Effort, say: Say) -> Measurements:
    """Open all sessions and measure. The first one refuses impossible options at once."""
    import seaway as sw

    options: Any = {"devices_per_host": each, "platform": platform}
    hops: list[transfer_costs.Hop] = []
    sums: list[devices.SumOver] = []
    reached = None
    with sw.local(hosts=hosts, **options) as session:
        if hosts > 1:
            say("contents, from host to host")
            hops = transfer_costs.hops(session, each, effort.sizes, effort.moves)
        rig = workloads.Rig(session, platform, hosts, each)
        samples = _samples(rig, effort, say)
        waited = stall_costs.calls(rig, effort.waiting)
        if platform != "timed":
            say("devices: products, sums, sums over all of them")
            reached = devices.measured(hosts * each, 2 if quick else 3, quick)
            sums = devices.sums(hosts * each, 2 if quick else 3, quick)
    for other in () if quick else others(platform, hosts):
        with sw.local(hosts=other, **options) as session:
            samples += _samples(workloads.Rig(session, platform, other, each), effort, say)
            if other > 1 < hosts and platform != "timed":
                sums += devices.sums(other * each, 3, quick)
    return Measurements(samples, hops, waited, reached, sums)


def others(platform: str, hosts: int) -> list[int]:
    """Numbers of hosts of further sessions.

    With other numbers of hosts, a process does more or less work each time it wakes up. Without them the fit could not
    tell the cost of waking up from the cost of messages.
    """
    if platform not in MANY:
        return []
    return [number for number in MANY[platform] if number != hosts]


def _samples(rig: workloads.Rig, effort: Effort, say: Say) -> list[WatchSample]:
    say(f"workloads on {rig.hosts} host{'s' if rig.hosts > 1 else ''}")
    return workloads.samples(rig, effort.repeats, effort.seconds, effort.bound, say)


def _machine(platform: str, cores: int) -> str:
    how = "cpu devices, an agent process each" if platform == "cpu" else f"{platform} devices, all in one agent process"
    jax = "" if platform == "timed" else f", jax {version('jax')}"
    python = python_platform.python_version()
    return f"{this_machine.processor()}, {cores} cores, {time.strftime('%Y-%m-%d')}, Python {python}{jax}; {how}"


def _host_memory() -> list[Figure]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return [Figure("host_memory", memory, "B", 0.0, "what this machine says it has", "machine.host_memory")]


# --- figures ----------------------------------------------------------------------------------------------------------


def _of_costs(costs: FittedCosts, timed: bool) -> list[Figure]:
    how = sources(costs)
    made = [
        Figure(name, cost.value, "ns", cost.spread, how[name], f"costs.{name}" if name in MODEL else "")
        for name, cost in costs.costs.items()
    ]
    none = "timed devices have nothing to prepare" if timed else "arrays are handles: nothing is done ahead of a launch"
    made.append(Figure("prepare", 0, "ns", 0.0, f"of our backend: {none}", "costs.prepare"))
    words = f"percent: root mean square of what the costs miss of a workload's CPU, {costs.rows} rows of all groups"
    made.append(Figure("missed", 100 * costs.missed, "", 0.0, words))
    return made


def _of_gangs(samples: Sequence[WatchSample]) -> list[Figure]:
    """CPU time of threads that compute. It is the computation's own time, not a cost of the host."""
    sums = [sample for sample in samples if sample.name.startswith(workloads.ALONE)]
    each = [sample.cpu["device"] / sample.counts["ends"] for sample in sums if sample.cpu["device"]]
    if not each:
        return []
    took = middle(each)
    return [Figure(GANG, took.value, "ns", took.spread, "CPU of a host's threads that compute: a scalar sum")]


def _of_stalls(draft: Calibration, found: Measurements, count: int) -> list[Figure]:
    devices = draft.hosts * draft.devices_per_host
    lasts = max((figure.value for figure in draft.figures if figure.name == GANG), default=0.0)
    seen = stall_costs.found_in(
        found.waited, stall_costs.simulated(tomllib.loads(draft.text()), devices, round(lasts), count)
    )
    if seen is None:
        return []
    how = "measured: how far calls differ that are waited for one by one, which simulated ones do most alike with it"
    return figures("costs", "ns", [
        ("stall", seen.each.value, seen.each.spread, f"{how}: how long a thread is held up"),
        ("stall_every", seen.every.value, seen.every.spread, f"{how}: once in so much work"),
    ])  # fmt: skip


def _of_transfers(hops: Sequence[transfer_costs.Hop], costs: FittedCosts) -> list[Figure]:
    if not hops:
        return []
    found, made = transfer_costs.transfers_of(hops), []
    ends = [costs.costs[name] for name in ("send", "receive") if name in costs.costs]
    message = sum(end.value for end in ends) / 2
    byte = max(0.0, found.byte.slope - message / CHUNK)
    if len(ends) == 2:
        how = "measured: a chunk is a message, so as `send` and `receive` on average; its bytes are apart"
        made += figures("costs", "ns", [("transfer_chunk", message, max(end.spread for end in ends), how)])
    words = f"by byte: hops of {transfer_costs.LARGE} bytes and more, less a message a chunk"
    made += figures("costs", "ps/B", [
        ("transfer_byte_ps", 1000 * byte, found.byte.spread, f"measured: hosts' CPU of contents, one end, {words}")
    ])  # fmt: skip
    small = min(hop.nbytes for hop in hops)
    made.append(
        Figure("hop", found.small.value, "ns", found.small.spread, f"an array of {small} bytes to another host")
    )
    return made


def _of_network(copied: FittedCost) -> list[Figure]:
    """Processes of one machine have no wire between them: contents are copied in memory."""
    how = "measured: bytes copied in memory; between processes of one machine is no other wire"
    none = "assumed: between processes of one machine a message takes the CPU of both its ends, and nothing beside it"
    return [
        *figures("dcn", "ns", [("latency", 0, 0.0, none)]),
        *figures("dcn", "B/s", [("bandwidth", 1e9 / copied.value, copied.spread, how)]),
    ]


def _of_ends(draft: Calibration, hops: Sequence[transfer_costs.Hop]) -> list[Figure]:
    if not hops:
        return []
    found = transfer_costs.end_of(hops, tomllib.loads(draft.text()), draft.devices_per_host)
    how = "measured: hosts' CPU of the smallest hops, one end: what the simulator's other costs leave of it"
    return figures("costs", "ns", [("transfer_end", found.value, found.spread, how)])


def _of_devices(reached: devices.Reached | None) -> list[Figure]:
    if reached is None:
        return []
    how = "measured: all devices at once"
    return figures("chip", "FLOP/s", [
        ("peak_flops", reached.flops.value, reached.flops.spread, f"{how}, the best of float32 products of matrices")
    ]) + figures("chip", "B/s", [
        ("hbm_bandwidth", reached.bytes.value, reached.bytes.spread, f"{how}, a sum of two arrays: read, read, written")
    ])  # fmt: skip


def _of_sums(sums: Sequence[devices.SumOver], across: bool) -> list[Figure]:
    """Latency and bandwidth by the model of a sum behind a switch: 2 log2(n) latencies, 2 (n-1)/n of the bytes."""
    if not sums:
        return []
    rows = [
        FitRow(one.ns, {
            "latency": 2.0 * (one.devices - 1).bit_length(), "byte": 2 * (one.devices - 1) / one.devices * one.nbytes
        })
        for one in sums
    ]  # fmt: skip
    found, way = fit(rows).costs, "network" if across else "ici"
    counts = ", ".join(map(str, sorted({one.devices for one in sums})))
    how = f"measured: sums over {counts} devices, of several sizes"
    latency, byte = (found.get(name, FittedCost(0.0, 0.0)) for name in ("latency", "byte"))
    made = figures("chip", "ns", [(f"{way}_latency", latency.value, latency.spread, f"{how}: what is left of none")])
    if byte.value:
        made += figures("chip", "B/s", [(f"{way}_bandwidth", 1e9 / byte.value, byte.spread, f"{how}: by byte")])
    return made


# --- what is not ------------------------------------------------------------------------------------------------------

CHIP = ("peak_flops", "hbm_bandwidth", "hbm_bytes", "clock_hz", "ici_latency", "ici_bandwidth", "network_latency",
        "network_bandwidth", "pcie_latency", "pcie_bandwidth")  # fmt: skip


def _missing(made: Sequence[Figure], platform: str, hosts: int, found: Measurements) -> list[str]:
    """Texts that name figures not measured, and the values that the simulator uses for them."""
    have = {figure.place for figure in made if figure.place}
    words = []
    costs = [
        key
        for key in (*MODEL, "transfer_chunk", "transfer_byte_ps", "transfer_end", "stall", "stall_every")
        if f"costs.{key}" not in have and key != "sum"
    ]
    if costs:
        words.append(f"{', '.join(costs)} (profile 'seaway' holds)")
    if "dcn.bandwidth" not in have:
        words.append("the bandwidth between hosts, since there is only one (the assumed network card holds)")
    like = LIKE.get(platform, "cpu")
    chip = [key for key in CHIP if f"chip.{key}" not in have]
    words.append(f"{', '.join(chip)} of the devices (chip {like!r} holds)")
    if found.reached is None:
        words[-1] += "; timed devices compute nothing"
    return words
