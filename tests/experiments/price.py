"""`python -m tests.experiments.price [NAME ...]`: prices computations of the paper's tables and figures for the book.

NAME: table2, table1, fig12, sweeps; or `fit`, which fits the chip's efficiency on one row of Table 2; or the key of any
computation, as an experiment names it that misses its cost. Without a name all but keys. Computations in the book are
skipped, unless `--again` is given. It needs the TPU compiler (extra `tpu`), and minutes for each computation.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from experiments.pricing import book, jobs
from experiments.pricing.jobs import Job
from experiments.pricing.shapes import MODELS
from experiments.training.rows import FITTED, PRINTED, SEED_ROW, Fit, fits, pipelined
from seaway.costs import Cost, tpu_costs
from seaway.errors import CostError

from .models.built import built, topology

FIT = "fit"
LENGTHS = (1024, 512)
PIPELINES = ((4, 16), (16, 64))  # stages and micro-batches, on 128 cores with 2048 sequences
T5_ROWS = (("T5-Base", 32), ("T5-Large", 32), ("T5-3B", 512), ("T5-11B", 512))


def table2() -> Iterator[Job]:
    for count, microbatches in PIPELINES:
        yield from _pipeline(count, microbatches, 1024)
    yield jobs.step("LM-3B", 128, 2048, 1024)


def table1() -> Iterator[Job]:
    for model, cores in T5_ROWS:
        yield jobs.t5_step(model, cores, 4 * cores, 512, 128)


def fig12() -> Iterator[Job]:
    """Jobs for two islands, and for one of twice the devices with the same split."""
    for model, cores in (("LM-64B", 512), ("LM-136B", 1024)):
        split = jobs.model_axis(MODELS[model], cores)
        for together, shares in ((1, 2), (2, 1)):
            for segment in jobs.segments(model, together * cores, 2, together * 1024, 1024, shares, split):
                yield from segment.jobs


def sweeps() -> Iterator[Job]:
    """Jobs beyond the paper's rows: other meshes and other sequence lengths."""
    for split in (2, 4, 16):
        yield jobs.step("LM-3B", 128, 2048, 1024, split)
    for length in LENGTHS:
        yield from _pipeline(4, 16, length)
        yield jobs.step("LM-3B", 128, 2048, length)
        yield from _pipeline(16, 64, length)
    yield from _pipeline(8, 32, 1024)
    yield from _pipeline(16, 64, 1024, cores=512)
    yield from _pipeline(16, 64, 1024, schedule="1f1b")


def _pipeline(count: int, microbatches: int, length: int, cores: int = 128, schedule: str = "gpipe") -> Iterator[Job]:
    each, batch = cores // count, 2048 * cores // 128
    waiting = jobs.waiting_last(schedule, count, microbatches)
    for stage in jobs.stages("LM-3B", each, count, batch // microbatches, length, waiting):
        yield from stage.jobs


ALL: dict[str, Callable[[], Iterator[Job]]] = {"table2": table2, "table1": table1, "fig12": fig12, "sweeps": sweeps}


def main(arguments: list[str]) -> int:
    again = "--again" in arguments
    names = [name for name in arguments if name != "--again"] or [*ALL, FIT]
    unknown = [name for name in names if name not in (*ALL, FIT) and "; " not in name]
    if unknown:
        print(f"there is no {unknown[0]!r}; there is: {', '.join((*ALL, FIT))}", file=sys.stderr)
        return 2
    if importlib.util.find_spec("libtpu") is None:
        print("the TPU compiler is not installed: pip install 'seaway[tpu]'", file=sys.stderr)
        return 2
    failed = _price([name for name in names if name != FIT], again)
    if FIT in names and not failed:
        commit_fits(LENGTHS)
    return 1 if failed else 0


def _price(names: list[str], again: bool) -> int:
    """Price these computations. Returns how many failed."""
    failed = 0
    keys = [key for name in names for key in ([job.key for job in ALL[name]()] if name in ALL else [name])]
    seen = list(dict.fromkeys(keys))
    for at, key in enumerate(seen, 1):
        if not again and key in book.committed(book.file_of(key)):
            continue
        start = time.monotonic()
        try:
            found = f"{commit(key).duration / 1e6:.3f} ms"
        except (CostError, ValueError) as error:
            failed += 1
            found = f"{type(error).__name__}: {str(error)[:300]}"
        print(f"[{at}/{len(seen)}] {key}: {found}; took {time.monotonic() - start:.0f} s", flush=True)
    return failed


# --- the book is written ----------------------------------------------------------------------------------------------


def compiled(key: str) -> Cost:
    """What the TPU compiler says of it."""
    one = built(key)
    return tpu_costs(
        one.function, one.arguments, topology=topology(key), out_shardings=one.results, donate=one.donate, name=one.name
    )


def commit(key: str) -> Cost:
    """Price a computation and add it to the book."""
    path, found = book.file_of(key), compiled(key)
    _write(path, book.read(path) | {key: found})
    book.committed.cache_clear()
    return found


def _write(path: Path, costs: dict[str, Cost]) -> None:
    """Write the file atomically, since other processes may read it."""
    lines = [f"{msgspec.json.encode(key).decode()}: {_line(costs[key])}" for key in sorted(costs)]
    whole = path.with_suffix(".tmp")
    whole.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    os.replace(whole, path)


def _line(found: Cost) -> str:
    """One line a cost, so that diffs are readable. The compiler's time is left out, since it varies."""
    found = msgspec.structs.replace(found, seconds=0.0)
    return msgspec.json.encode(found, order="deterministic").decode()


# --- the fit ------------------------------------------------------------------------------------------------


def fit(length: int, tolerance: float = 1e-5) -> Fit:
    """The efficiency with which the seed row's prediction equals the paper's number.

    A step's time is nearly linear in 1 / efficiency, so a few secant steps find it.
    """
    point = {**SEED_ROW, "length": length, "islands": 1, "schedule": "gpipe", "profile": "paper"}
    point |= {"steps": 3, "seed": 0, "parts": False}

    def step_s(inverse: float) -> float:
        return float(pipelined({**point, "efficiency": 1 / inverse}).row["step_s"])

    wanted = SEED_ROW["batch"] * length / PRINTED
    low, high = 1.0, 2.0
    at_low, at_high = step_s(low), step_s(high)
    while abs(at_high / wanted - 1) > tolerance:
        low, high, at_low = high, high + (wanted - at_high) * (high - low) / (at_high - at_low), at_high
        at_high = step_s(high)
    found = book.cost(jobs.stages("LM-3B", 32, 4, 128, length, SEED_ROW["microbatches"])[0].forward)
    row = {**SEED_ROW, "length": length}
    return Fit(round(1 / high, 6), row, PRINTED, found.versions)


def commit_fits(lengths: Iterable[int]) -> None:
    """Fit and commit these lengths. Others use the nearest of these."""
    known = {str(length): fit(length) for length in sorted(lengths)}
    FITTED.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")
    fits.cache_clear()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
