"""Shared parts of the tables and figures of training: options, rows of measurements, and the fit of one factor.

The chip's efficiency is fitted on one row of Table 2 (SEED_ROW), for each sequence length, since the paper does not
print the length. Fits are committed in experiments/data. Everything else is predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from seaway.costs import IdleCluster
from sim.hardware import Kernel, Setup

from ..framework import BadOption, Option
from ..framework.options import profile_of
from ..pricing import book, jobs
from ..pricing.shapes import MODELS, Decoder, flops_per_token
from . import setups
from .drive import PARTS, Trained, ablation, train
from .exchange import Islands, islands
from .pipelines import Pipeline, pipeline
from .steps import Pricing, Step, spmd

if TYPE_CHECKING:
    import pandas as pd

PEAK = 61.5e12  # flops a second of a TPU v3 core, from sim/data/chips/v3.toml
FITTED = book.DATA / "efficiency.json"
SEED_ROW: dict[str, Any] = {"model": "LM-3B", "cores": 128, "stages": 4, "microbatches": 16, "batch": 2048}
PRINTED = 133.7e3  # tokens a second of that row

LENGTH = Option("length", 1024, "tokens of a sequence, which the paper does not print", least=16)
EFFICIENCY = Option("efficiency", 0.0, "the chip's efficiency against its compiler's estimate; 0: as fitted", least=0)
PROFILE = Option("profile", "paper", "host costs: paper, seaway, ideal, a TOML file, or changed: paper:send*2+step=5us")
SEED = Option("seed", 0, "seed of all random draws")
STEPS = Option("steps", 2, "training steps; the first fills pipelines and is not counted", least=2)
IN_PARTS = Option("parts", True, "run each row again without control and transfers, to find the parts of its time")


class Fit(msgspec.Struct, frozen=True):
    efficiency: float
    row: dict[str, Any]
    tokens_per_s: float
    versions: dict[str, str]


@cache
def fits() -> dict[int, Fit]:
    if not FITTED.exists():
        return {}
    return msgspec.json.decode(FITTED.read_bytes(), type=dict[int, Fit], strict=False)


def efficiency(asked: float, length: int) -> float:
    """The given efficiency, or that fitted at this sequence length, or at the nearest one."""
    if asked or not fits():
        return asked or 1.0
    nearest = min(fits(), key=lambda known: (abs(known - length), known))
    return fits()[nearest].efficiency


class Measured(NamedTuple):
    row: dict[str, Any]
    trained: Trained


# --- rows --------------------------------------------------------------------------------------------------


def sized(batch: int, count: int, cores: int, stages: int) -> tuple[int, int]:
    """(sequences of a step, micro-batches), where 0 asks for what the other and the cores imply: four sequences a
    micro-batch and core of a stage, and four micro-batches a stage, as in the paper. SPMD has no micro-batches."""
    if stages == 1:
        return batch or 4 * SEQUENCES * cores, 0
    if not batch:
        count = count or 4 * stages
        return SEQUENCES * count * cores // stages, count
    return batch, count or max(1, batch * stages // (SEQUENCES * cores))


def pipelined(point: dict[str, Any]) -> Measured:
    """A row for a pipeline, with `stages` slices of one or several islands."""
    setup = setups.cluster(point["cores"], point["islands"])
    slices = setups.stages(setup, point["stages"])
    count = point["microbatches"]
    _divides(point["batch"], count * slices[0].devices, f"{count} micro-batches over {slices[0].devices} cores")
    batch = point["batch"] // count
    waiting = jobs.waiting_last(point["schedule"], point["stages"], count)
    costed = jobs.stages(point["model"], slices[0].devices, point["stages"], batch, point["length"], waiting)

    def make(light: bool) -> Step:
        of = Pipeline(costed, slices, count, batch, point["length"], point["schedule"], light)
        return pipeline(of, _pricing(point))

    return measured(make, setup, point)


def partitioned(point: dict[str, Any], job: jobs.Job, tokens: int) -> Measured:
    """A row for one computation on a whole island."""
    setup = setups.cluster(point["cores"])
    groups = point["cores"] // job.split
    _divides(point["batch"], groups, f"{groups} groups of cores")
    where = setups.whole(setup, job.split)[0]
    return measured(lambda light: spmd(job, where, tokens, _pricing(point)), setup, point)


def exchanged(point: dict[str, Any]) -> Measured:
    """A row for islands that each train on their share of the batch; there may be one."""
    setup = setups.cluster(point["cores"], point["islands"])
    each, alone = point["cores"] // point["islands"], point["batch"] // point["islands"]
    groups = point["islands"] * each // point["split"]
    _divides(point["batch"], groups, f"{groups} groups of cores")
    costed = jobs.segments(
        point["model"], each, point["segments"], alone, point["length"], point["islands"], point["split"]
    )
    slices = setups.whole(setup, costed[0].forward.split)

    def make(light: bool) -> Step:
        return islands(Islands(costed, slices, alone, point["length"], light), _pricing(point))

    return measured(make, setup, point)


def _divides(batch: int, among: int, whom: str) -> None:
    if batch < 1 or batch % among:
        near = max(among, round(batch / among) * among)
        raise BadOption(f"{batch} sequences do not go evenly into {whom}; the nearest that do: {near}")


def on_slice(kernel: Kernel, setup: Setup, split: int) -> Kernel:
    """The kernel with the time of its collectives included, on the devices where its slice is placed."""
    whole = IdleCluster(setup).time(kernel, setups.whole(setup, split)[0])
    return msgspec.structs.replace(kernel, duration=whole, collectives=())


def measured(make: Callable[[bool], Step], setup: Setup, point: dict[str, Any]) -> Measured:
    profile, steps, seed = profile_of(point["profile"]), point["steps"], point["seed"]
    step = make(False)
    if point["parts"]:
        found, parts = ablation(make, setup, profile, steps=steps, seed=seed)
    else:
        found, parts = train(step, setup, profile, steps=steps, seed=seed), {}
    row = {
        "tokens_per_s": found.tokens_per_s,
        "step_s": found.step_ns / 1e9,
        **parts,
        "moved_gb": found.moved_bytes / 1e9,
        "efficiency": round(_pricing(point).efficiency, 6),
    }
    return Measured(row, found)


def _pricing(point: dict[str, Any]) -> Pricing:
    return Pricing(efficiency(point["efficiency"], point["length"]))


def listed(frame: pd.DataFrame) -> list[Any]:
    """The frame's rows, with columns as attributes."""
    return list(frame.itertuples())


def one_and_several(frame: pd.DataFrame, *same: str) -> list[tuple[Any, Any]]:
    """Pairs of rows: one island, and the same training on several. `same`: columns that are equal, beside the usual."""
    known, keys = listed(frame), ("model", "cores", "batch", "length", "efficiency", "profile", "seed", *same)
    return [
        (one, other) for other in known for one in known
        if one.islands == 1 < other.islands and all(getattr(one, key) == getattr(other, key) for key in keys)
    ]  # fmt: skip


def known(value: float | None) -> bool:
    """Whether a cell of a frame has a number."""
    return value is not None and isfinite(value)


def utilisation(model: str, length: int, tokens_per_s: float, cores: int) -> float:
    """The used part of the chips' peak, by the flops of a token without recomputation."""
    shape = MODELS[model]
    assert isinstance(shape, Decoder)
    return tokens_per_s * flops_per_token(shape, length) / (cores * PEAK)


SEQUENCES = 4  # of a micro-batch on each core of a stage, in the paper


SOURCE = "- Costs of computations: experiments/data, made by the TPU compiler."  # the first line of findings


def sparse(frame: pd.DataFrame) -> list[str]:
    """A warning for pipelines whose cores have less to do at a time than the paper's."""
    lines = []
    for row in listed(frame):
        each = row.batch * row.stages / (row.cores * row.microbatches) if row.microbatches else SEQUENCES
        if each < SEQUENCES:
            wanted = SEQUENCES * row.cores * row.microbatches // row.stages
            lines.append(
                f"- WARNING: S={row.stages}, M={row.microbatches} on {row.cores} cores has {each:g} sequences a "
                f"micro-batch and core, the paper {SEQUENCES}: matrices are smaller and slower. `--batch {wanted}` is "
                "as in the paper."
            )
    return lines


def parts_in_words(row: Any) -> str:
    """The parts of a row's time as shares of its step."""
    shares = [(part, getattr(row, f"{part}_s") / row.step_s) for part in PARTS]
    return ", ".join(f"{part} {share:.1%}" for part, share in shares)
