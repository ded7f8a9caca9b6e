"""`python -m experiments.pricing [NAME ...]`: prices the computations of the paper's tables and figures for the book.

NAME: table2, table1, fig12, sweeps; or `fit`, which fits the chip's efficiency on one row of Table 2. Without a name
all of these. Computations in the book are skipped, unless `--again` is given. It needs the TPU compiler (extra `tpu`),
and minutes for each computation.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

from seaway.errors import CostError

from ..models.shapes import MODELS
from . import book, jobs
from .jobs import Job

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
    unknown = [name for name in names if name not in (*ALL, FIT)]
    if unknown:
        print(f"there is no {unknown[0]!r}; there is: {', '.join((*ALL, FIT))}", file=sys.stderr)
        return 2
    if not book.can_compile():
        print("the TPU compiler is not installed: pip install 'seaway[tpu]'", file=sys.stderr)
        return 2
    failed = _price([name for name in names if name != FIT], again)
    if FIT in names and not failed:
        from ..training.rows import commit_fits

        commit_fits(LENGTHS)
    return 1 if failed else 0


def _price(names: list[str], again: bool) -> int:
    """Price these jobs. Returns how many failed."""
    failed = 0
    seen = {job.key: job for name in names for job in ALL[name]()}
    for at, job in enumerate(seen.values(), 1):
        if not again and job.key in book.committed(book.file_of(job.key)):
            continue
        start = time.monotonic()
        try:
            found = f"{book.commit(job).duration / 1e6:.3f} ms"
        except CostError as error:
            failed += 1
            found = f"{type(error).__name__}: {str(error)[:300]}"
        print(f"[{at}/{len(seen)}] {job.key}: {found}; took {time.monotonic() - start:.0f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
