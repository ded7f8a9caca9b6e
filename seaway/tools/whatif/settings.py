"""The settings under which a workload is run again: the changes a user may make, and checks that they are possible."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from core.controller import Config
from core.model import Cluster, Impossible, Island
from core.schedule.policy import Policy
from core.slices import fits
from sim.hardware import Profile, Setup, setups
from sim.simulation import fanout_of

from .workload import Workload, anywhere

SHAPE = ("name", "hosts", "devices_per_host", "torus", "wraps", "block", "memory", "host_memory", "host_disk", "spares",
         "ici_bandwidth", "ici_latency")  # fmt: skip


class Settings(NamedTuple):
    """`weights`: by client in the order of joining; () for the recorded ones. `dispatch`: "" for each run's own."""

    title: str
    setup: Setup
    make: Callable[[], Policy]
    config: Config
    profile: Profile
    weights: tuple[int, ...] = ()
    dispatch: str = ""
    open_loop: bool = False
    free: bool = False  # slices may lie on any island
    alone: bool = False  # each host runs its part of a collective by itself, as `timed` devices do


def as_recorded(recorded: Workload, profile: Profile, known: Setup | None = None) -> Settings:
    """The recorded settings, on a model of the recorded cluster. `known`: a measured set-up of that cluster."""
    return Settings("same settings", setup_of(recorded.cluster, known), recorded.make, recorded.config, profile)


def setup_of(cluster: Cluster, known: Setup | None = None) -> Setup:
    """A set-up with the cluster's islands and their chips; an unknown chip is modelled as a CPU.

    `known`: a measured set-up of the same cluster, with its network and shared cores.
    """
    if known is not None:
        shapes = [[(each.hosts, each.devices_per_host) for each in one.islands] for one in (cluster, known.cluster)]
        if shapes[0] != shapes[1]:
            raise Impossible(
                f"cluster {known.name!r} has islands of (hosts, devices a host) {shapes[1]}, and the recorded one "
                f"{shapes[0]}: calibrate one of the recorded shape (`seaway calibrate --hosts "
                f"{shapes[0][0][0] if shapes[0] else 1}`)"
            )
        return msgspec.structs.replace(known, cluster=cluster)
    try:
        setup = setups.load(_table(cluster, kinds=True))
    except Impossible:
        setup = setups.load(_table(cluster, kinds=False))
    dcn = setup.dcn
    if cluster.dcn_bandwidth:
        dcn = msgspec.structs.replace(dcn, bandwidth=cluster.dcn_bandwidth)
    if cluster.dcn_latency:
        dcn = msgspec.structs.replace(dcn, latency=cluster.dcn_latency)
    return msgspec.structs.replace(setup, cluster=cluster, dcn=dcn)


def changed_setup(cluster: Cluster, hosts: int | None, islands: int | None, known: Setup | None = None) -> Setup:
    """The recorded cluster with another number of hosts an island, or of islands. Host costs of `known` are kept."""
    if islands is None and hosts is None:
        return setup_of(cluster, known)
    entries: list[dict[str, Any]] = _table(cluster, kinds=True)["island"]
    overrides: dict[str, object] = {} if hosts is None else {"hosts": hosts}
    if islands is not None:
        alike = {(island.hosts, island.devices_per_host, island.kind, island.memory) for island in cluster.islands}
        if len(alike) > 1:
            raise Impossible(f"--islands {islands}: the recorded cluster has islands that differ; write a cluster file")
        overrides["islands"] = islands
        name = entries[0]["name"]
        entries = [{**entries[0], "name": name[:-1] if name[-1:] == "0" else name}]
    found = setups.load({"name": "recorded", "island": entries}, **overrides)
    return found if known is None else msgspec.structs.replace(found, profile=known.profile)


def _table(cluster: Cluster, kinds: bool) -> dict[str, Any]:
    return {"name": "recorded", "island": [_entry(island, kinds) for island in cluster.islands]}


def _entry(island: Island, kinds: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": island.kind} if kinds else {}
    for key in SHAPE:
        value = getattr(island, key)
        if value not in ((), 0):
            found[key] = list(value) if isinstance(value, tuple) else value
    return found


def config_of(
    recorded: Workload, setup: Setup, profile: Profile, *, window: int | None = None, early: str | None = None,
    fanout: int | None = None,
) -> Config:  # fmt: skip
    """The recorded config with changes. On another cluster the fan-out of the tree of hosts is the profile's."""
    config = recorded.config
    if setup.cluster != recorded.cluster:
        config = msgspec.structs.replace(config, fanout=fanout_of(profile, setup.cluster))
    given = {"window": window, "early": early, "fanout": fanout}
    for key in ("window", "fanout"):
        if given[key] is not None and int(str(given[key])) < 1:
            raise Impossible(f"--{key} {given[key]}: at least 1")
    return msgspec.structs.replace(config, **{key: value for key, value in given.items() if value is not None})


def check(recorded: Workload, settings: Settings) -> None:
    """Raise Impossible if the cluster lacks islands, kinds or devices that are needed, or the weights do not fit."""
    _check_weights(recorded, settings.weights)
    islands = settings.setup.cluster.islands
    names = [island.name for island in islands]
    kinds = list(dict.fromkeys(island.kind for island in islands))
    for who, spec in recorded.slices():
        where = anywhere(spec) if settings.free else spec
        for what, wanted, there in (("island", where.island, names), ("kind", where.kind, kinds)):
            if wanted and wanted not in there:
                known = f"{', '.join(map(repr, there[:8]))}{', ...' if len(there) > 8 else ''}"
                raise Impossible(
                    f"{who} names {what} {wanted!r} for its slice {spec.name!r}, and cluster "
                    f"{settings.setup.name!r} has {known}: take a cluster that has it, or add --anywhere, and slices "
                    f"are placed wherever there is room"
                )
        if not any(fits(island, where) for island in islands):
            raise Impossible(
                f"{who} has a slice {spec.name!r} of {spec.devices} devices, for which no island of cluster "
                f"{settings.setup.name!r} has room: {settings.setup.cluster.describe()}"
            )


def _check_weights(recorded: Workload, weights: Sequence[int]) -> None:
    if weights and len(weights) != len(recorded.people):
        names = ", ".join(person.label for person in recorded.people)
        raise Impossible(
            f"{len(weights)} weights, {':'.join(map(str, weights))}, and the log has {len(recorded.people)} clients: "
            f"{names}, in that order"
        )
