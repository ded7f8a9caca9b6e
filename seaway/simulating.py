"""`sw.simulate`: a session on modelled hardware, driven by the same core as a real one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from core import policy as policies
from core.controller import Config
from core.policy import Fifo, Policy
from sim import hardware
from sim.faults import Fault
from sim.hardware import Setup
from sim.noise import Noise
from sim.profiles import Profile
from sim.profiles import profile as profile_of
from sim.simulation import Simulation

from .costs.units import duration
from .errors import nearest
from .session import Dispatch, Session
from .simulated.driver import SimDriver
from .simulated.pricing import Costs

Policies = str | Policy | type[Policy] | Callable[[], Policy] | None


def simulate(
    cluster: str | Path | Mapping[str, object] | Setup = "A",
    *,
    policy: Policies = None,
    profile: str | Path | Profile = "paper",
    values: Literal["shapes", "compute"] | Mapping[str, Any] = "shapes",
    sizes: Any = None,
    costs: Costs = "estimate",
    seed: int = 0,
    fidelity: Literal["exact", "cohort"] = "cohort",
    noise: Noise | Mapping[str, Any] | None = None,
    faults: Iterable[Fault] = (),
    dispatch: Dispatch = "parallel",
    config: Config | Mapping[str, Any] | None = None,
    progress: bool | None = None,
    **hardware_overrides: Any,
) -> Session:
    """A session on a simulated cluster. `with sw.simulate("A", policy="stride") as s:` 2048 TPUs, on this machine.

    cluster: "A", "B", "C" (the paper's), "v4-512", a TOML file, a table; with `hosts=`, `islands=`, ... to change it.
    policy: "fifo", "stride:lead=3", ...; a Policy, its class, or a function that makes one. profile: host costs.
    values: "shapes" (no contents), "compute" (on this machine's CPU), or stand-ins by name. sizes: rows that irregular
    computations make: a number, a fraction, a list, a function of (rng, bound), or a dict of these by name.
    costs: of computations that bring none: "estimate" (their flops and bytes), "roofline" (compiled, with
    collectives), a time, a dict by name, a function of the signature.
    seed: same seed, same trace, to the byte. noise: `Noise` or its fields. faults: `sim.faults.Fault`s, or `drawn`
    ones: crashes, cuts, slow hosts, pre-emption notices, announced so that their islands are not cohorts.
    dispatch: "parallel", or "sequential" for the baseline. config: the controller's settings.
    progress: a line after two seconds; None where it can be seen.
    """
    setup = cluster if isinstance(cluster, Setup) else hardware.load(cluster, **hardware_overrides)
    if isinstance(cluster, Setup) and hardware_overrides:
        raise ValueError(
            f"a Setup is complete; give {next(iter(hardware_overrides))!r} to sim.hardware.load()"
        )
    if fidelity not in ("exact", "cohort"):
        raise ValueError(
            f"fidelity={fidelity!r}: 'cohort', or 'exact' for the reference (one machine a host)"
        )
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ValueError(f"seed={seed!r}: a whole number")
    simulation = Simulation(
        setup, policy=policy_of(policy), profile=profile if isinstance(profile, Profile) else profile_of(profile),
        seed=seed, fidelity=fidelity, noise=_noise(noise), config=_config(config, setup, profile),
        faults=faults,
    )  # fmt: skip
    driver = SimDriver(simulation, values=values, sizes=sizes, costs=costs, seed=seed, progress=progress)
    return Session(driver, dispatch=dispatch)


def policy_of(policy: Policies) -> Callable[[], Policy]:
    """One for each island: what makes them."""
    if policy is None:
        return Fifo
    if isinstance(policy, str):
        policies.named(policy)  # says now what is wrong with it
        return lambda: policies.named(policy)
    if isinstance(policy, Policy):
        pristine = copy.deepcopy(policy)
        return lambda: copy.deepcopy(pristine)
    if callable(policy):
        return policy
    raise TypeError(
        f"policy={policy!r}: a name ({', '.join(policies.POLICIES)}), a Policy, or what makes one"
    )


def _struct(kind: type[Any], given: Any, what: str) -> Any:
    if given is None or isinstance(given, kind):
        return given
    known = [field.name for field in msgspec.structs.fields(kind)]
    for key in given:
        if key not in known:
            raise ValueError(f"{what} has no {key!r}; there is {', '.join(known)}{nearest(str(key), known)}")
    return kind(**given)


def _noise(given: Noise | Mapping[str, Any] | None) -> Noise | None:
    """`latency` may be text, with a unit."""
    if isinstance(given, Mapping) and isinstance(given.get("latency"), str):
        given = {**given, "latency": duration(given["latency"], "noise: latency")}
    return _struct(Noise, given, "noise")  # type: ignore[no-any-return]


def _config(given: Any, setup: Setup, profile: Any) -> Config | None:
    return _struct(Config, given, "config")  # type: ignore[no-any-return]
