"""`sw.simulate`: opens a session on simulated hardware. It runs the same core as a real session."""

import copy
import importlib.metadata
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Unpack

import msgspec

from core.controller import ON_DEVICES, Bounds, Config
from core.schedule import policy as policies
from core.schedule.policy import Fifo, Policy
from core.transfer import CHUNK
from sim.engine import Noise
from sim.hardware import Profile, Setup, setups
from sim.hardware import profile as profile_of
from sim.simulation import MIB, Fault, Simulation, fanout_of

from ...errors import Impossible, nearest
from ...units import Time
from ...units import duration as nanoseconds
from ..arguments import checked_live, checked_session
from ..session import Dispatch, Session, opened_live
from .driver import SimDriver
from .pricing import Costs
from .typed_options import ConfigOptions, HardwareOptions, NoiseOptions

log = logging.getLogger("seaway")
Policies = str | Policy | type[Policy] | Callable[[], Policy] | None


def simulate(
    cluster: str | Path | Mapping[str, object] | Setup = "A",
    *,
    policy: Policies = None,
    profile: str | Path | Profile | None = None,
    values: Literal["shapes", "compute"] | Mapping[str, Any] = "shapes",
    sizes: Any = None,
    costs: Costs = "estimate",
    seed: int = 0,
    fidelity: Literal["exact", "cohort"] = "cohort",
    noise: Noise | NoiseOptions | None = None,
    faults: Iterable[Fault] = (),
    dispatch: Dispatch = "parallel",
    config: Config | ConfigOptions | None = None,
    retries: int = 0,
    progress: bool | None = None,
    live: bool | str = False,
    **hardware_overrides: Unpack[HardwareOptions],
) -> Session:
    """Open a session on a simulated cluster. It runs the same scheduler as a real one, in simulated time.

    cluster: "A", "B", "C" (the paper's), "v4-512", a TOML file, or a table; `hosts=`, `islands=`, ... change it.
    policy: "fifo", "stride:lead=3", ...; a policy, its class, or a function that makes one (see `sw.policies`).
    profile: what hosts take: "paper", "seaway", "ideal" (no time), a TOML file. None: the cluster file's, or "paper".
    values: "shapes" (no contents), "compute" (on this machine's CPU), or a dict of stand-ins by name.
    sizes: rows that irregular computations make: a number, a fraction, a list, a function of (rng, bound), or a dict.
    costs: what computations without a cost take: "estimate" (by their flops and bytes), "roofline" (compiled, with
    collectives), a time, a dict by name, or a function of the signature.
    seed: the same seed gives the same trace. noise: a `sim.engine.Noise`, or a dict of its fields.
    faults: a list of `sw.fault(...)`: crashes, cuts, slow hosts, pre-emption notices.
    fidelity: "cohort", or "exact" for the reference. dispatch: "parallel", or "sequential" for the baseline.
    config: settings of the controller. retries: how often a run that the cluster failed is submitted again, unless its
    program says otherwise. progress: a line on the terminal after two seconds; None: if somebody can see it.
    live: serve a page that shows what goes on, and print its link; or the address for it, such as "127.0.0.1:29100".

        >>> step = sw.synthetic("step", devices=512, duration="1ms", allreduce="4B")
        >>> with sw.simulate("B", policy="stride") as s:
        ...     x = step(np.float32(0)).block_until_ready()
        ...     print(s)
        <sw.Session, simulated cluster B: 64 hosts, 512 devices; profile paper (fitted)>
    """
    checked_session("sw.simulate", dispatch, retries)
    checked_live("sw.simulate", live)
    setup = cluster if isinstance(cluster, Setup) else _setup(cluster, hardware_overrides)
    if isinstance(cluster, Setup) and hardware_overrides:
        raise ValueError(f"a Setup is complete; give {next(iter(hardware_overrides))!r} to sim.hardware.load()")
    if fidelity not in ("exact", "cohort"):
        raise ValueError(f"fidelity={fidelity!r}: 'cohort', or 'exact' for the reference (one machine a host)")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ValueError(f"seed={seed!r}: a whole number")
    if progress is not None and not isinstance(progress, bool):
        raise TypeError(f"progress={progress!r}: True, False, or None for a line where it can be seen")
    costs_of_hosts = _profile(profile, setup)
    if 0 < costs_of_hosts.hosts < setup.cluster.hosts:
        log.warning(
            "profile %r was measured with %d hosts at most; how it goes on to %d is the model's word alone",
            costs_of_hosts.name, costs_of_hosts.hosts, setup.cluster.hosts,
        )  # fmt: skip
    simulation = Simulation(
        setup, policy=policy_of(policy), profile=costs_of_hosts, seed=seed, fidelity=fidelity,
        noise=struct_of(Noise, noise, "noise"), config=_config(config, setup, costs_of_hosts), faults=_faults(faults),
        chunk=16 * MIB if setup.profile is None else CHUNK,
    )  # fmt: skip
    driver = SimDriver(simulation, values=values, sizes=sizes, costs=costs, seed=seed, progress=progress)
    return opened_live(Session(driver, dispatch=dispatch, retries=retries), live)


def fault(
    at: Time, what: str, whom: int | str, *, factor: float = 1.5, duration: Time | None = None, name: str = ""
) -> Fault:
    """Say what goes wrong in a simulation, or what an operator does, and when: for `sw.simulate(faults=[...])`.

    what: "crash_host", "return_host", "slow", "cut", ...; whom: a host, a device, or a client's name.
    factor, duration: of "slow"; duration: of "cut", too. name: for "fail_gang", the gang's.

        >>> step = sw.synthetic("step", devices=4, duration="10ms")
        >>> crash = [sw.fault("5ms", "crash_host", 0), sw.fault("40ms", "return_host", 0)]
        >>> with sw.simulate("B", hosts=1, faults=crash, retries=1) as s:
        ...     print(step(np.float32(0)).run.wait().blame)
        None
    """
    lasts = None if duration is None else nanoseconds(duration, "sw.fault: duration")
    return Fault(nanoseconds(at, "sw.fault: at"), what, whom, factor, lasts, name)


def policy_of(policy: Policies) -> Callable[[], Policy]:
    """A function that makes one policy, called for each island."""
    if policy is None:
        return Fifo
    if isinstance(policy, str):
        policies.named(policy, _installed)  # raises now if the name is wrong
        return lambda: policies.named(policy, _installed)
    if isinstance(policy, Policy):
        pristine = copy.deepcopy(policy)
        return lambda: copy.deepcopy(pristine)
    if callable(policy):
        return lambda: _made_by(policy)
    raise TypeError(
        f"policy={policy!r}: a name ({', '.join(policies.names(_installed))}), a Policy, or a function that makes one"
    )


def _installed() -> Iterable[policies.InstalledPolicy]:
    """The policies that installed packages have given a name."""
    return importlib.metadata.entry_points(group=policies.ENTRY_POINTS)


def _made_by(factory: Callable[[], Any]) -> Policy:
    made = factory()
    if not isinstance(made, Policy):
        raise TypeError(
            f"policy={factory!r} made {made!r}, which is no Policy: subclass sw.policies.Policy, or take one of "
            f"{', '.join(policies.names(_installed))}"
        )
    return made


def _setup(cluster: Any, overrides: Mapping[str, Any]) -> Setup:
    if not isinstance(cluster, str | Path | Mapping):
        known = "a name like 'A' or 'v4-512', the path of a TOML file, a table, or a Setup"
        raise TypeError(f"cluster={cluster!r}: {known}")
    options = [name for name in inspect.signature(simulate).parameters if name != "hardware_overrides"]
    for key in overrides:
        if key not in setups.OVERRIDES and (close := nearest(key, [*options, *setups.OVERRIDES])):
            raise Impossible(f"sw.simulate has no option {key!r}{close}")
    return setups.load(cluster, **overrides)


def _faults(given: Any) -> list[Fault]:
    found = list(given) if isinstance(given, Iterable) else [given]
    for fault in found:
        if not isinstance(fault, Fault):
            raise TypeError(f"faults={given!r}: a list, such as [sw.fault('200ms', 'crash_host', 7)]")
    return found


# What tables give with a unit, and structs (Noise, Config, Bounds) hold in nanoseconds.
TIMES = ("latency", "window_span", "max_reserved", "preempt_keep", "preempt_longest", "lease", "recovery",
         "floor", "absent", "compile")  # fmt: skip


def struct_of(kind: type[Any], given: Any, what: str, base: Any = None) -> Any:
    """Settings as a struct of this kind, from a table or from the struct itself. Missing ones come from `base`."""
    if given is None or isinstance(given, kind):
        return given if given is not None else base
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}={given!r}: a dict of settings, or a {kind.__name__}")
    known = [field.name for field in msgspec.structs.fields(kind)]
    for key in given:
        if key not in known:
            raise ValueError(f"{what} has no {key!r}; there is {', '.join(known)}{nearest(str(key), known)}")
    given = {
        key: nanoseconds(value, f"{what}: {key}") if key in TIMES
        else struct_of(Bounds, value, f"{what}: {key}", getattr(base, key, None)) if key == "bounds" else value
        for key, value in given.items()
    }  # fmt: skip
    try:
        settings = {} if base is None else {name: getattr(base, name) for name in known}
        return msgspec.convert({**settings, **given}, kind)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$")
        key = where.rstrip("`").lstrip(".").partition(".")[0]
        raise ValueError(f"{what}: {f'{key}={given[key]!r}: ' if key in given else ''}{reason}") from None


def _profile(given: Any, setup: Setup) -> Profile:
    if given is None:
        return setup.profile or profile_of("paper")
    if not isinstance(given, str | Path | Profile):
        raise TypeError(f"profile={given!r}: 'paper', 'seaway', 'ideal', the path of a TOML file, or a Profile")
    return given if isinstance(given, Profile) else profile_of(given)


def _config(given: Config | ConfigOptions | None, setup: Setup, profile: Profile) -> Config | None:
    """The controller's settings. A `Config` is taken as it is; a table leaves the rest to defaults.

    The default fan-out of the tree of hosts comes from the profile. A calibrated cluster has a real one's defaults.
    """
    base = None if setup.profile is None else ON_DEVICES
    if isinstance(given, Mapping) or (given is None and base is not None):
        given = {"fanout": fanout_of(profile, setup.cluster), **(given or {})}
    found: Config | None = struct_of(Config, given, "config", base)
    return None if found is None else checked_config(found)


def checked_config(found: Config) -> Config:
    least_of = {"window": 1, "max_passes": 0, "max_reserved": 1, "fanout": 1, "max_runs": 1}
    for key, least in least_of.items():
        if getattr(found, key) < least:
            raise ValueError(f"config: {key}={getattr(found, key)}: at least {least}")
    return found
