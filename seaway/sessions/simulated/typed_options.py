"""The options of `sw.simulate` and `sw.local` that are tables, for type checkers, which then see a misspelt key.

Tests compare these with what the options really take. Neighbours: `simulating` and `connected/local_cluster`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from ...units import Time


class HardwareOptions(TypedDict, total=False):
    """What changes a cluster: keys of a cluster file, which apply to each of its islands."""

    islands: int
    hosts: int
    devices_per_host: int
    torus: Sequence[int]
    wraps: Sequence[bool]
    block: Sequence[int]
    memory: int | str
    host_memory: int | str
    host_disk: int | str
    spares: int
    kind: str
    ici_bandwidth: int | str
    ici_latency: int | str
    machine: Mapping[str, Any]
    dcn: Mapping[str, Any]
    chip: Mapping[str, Any]
    shared: Sequence[Mapping[str, Any]]


class NoiseOptions(TypedDict, total=False):
    """`noise={...}`: the fields of `sim.engine.Noise`."""

    latency: Time
    compute: float
    stragglers: float
    straggler_factor: float


class BoundOptions(TypedDict, total=False):
    """`config={"bounds": {...}}`: how patient the controller is."""

    floor: Time
    factor: int
    hard: int
    contents: int
    absent: Time
    compile: Time
    byte: int


class ConfigOptions(TypedDict, total=False):
    """`config={...}`: the fields of `core.controller.Config`."""

    window: int
    window_span: Time
    window_most: int
    max_passes: int
    max_reserved: Time
    preempt_keep: Time
    preempt_longest: Time
    early: Literal["always", "idle", "never"]
    fanout: int
    literal_limit: int
    max_clients: int
    max_programs: int
    max_runs: int
    max_buffers: int
    bounds: BoundOptions
    lease: Time
    recovery: Time
