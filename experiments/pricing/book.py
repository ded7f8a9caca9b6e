"""The book of costs: a job goes in, its cost and the cost's source come out.

Costs committed in experiments/data (a file a model, with the compiler's versions) are used first. Otherwise the TPU
compiler prices the job now, if it is installed. Otherwise a roofline is used. The cost's `source` says which it was.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from seaway.costs import Cost, roofline_costs, tpu_costs

from .jobs import Job

DATA = Path(__file__).parent.parent / "data"


def cost(job: Job) -> Cost:
    known = committed(file_of(job.key)).get(job.key)
    if known is not None:
        return known
    able = can_compile()
    how = "by the TPU compiler" if able else f"by a roofline, since the TPU compiler is not installed ({EXTRA})"
    print(f"not in experiments/data, so it is priced now, {how}, which takes minutes: {job.key}", file=sys.stderr)
    return compiled(job) if able else roofline(job)


COMMITTED, COMPILED = "committed", "tpu-compiler"
EXTRA = "pip install 'seaway[tpu]'"


def origin(job: Job, found: Cost) -> str:
    """Where this cost comes from: `committed`, `tpu-compiler` (now, on this machine), `roofline`, or what it says."""
    return COMMITTED if committed(file_of(job.key)).get(job.key) is found else found.source


def can_compile() -> bool:
    return importlib.util.find_spec("libtpu") is not None


def compiled(job: Job) -> Cost:
    return _priced(tpu_costs, job)


def roofline(job: Job) -> Cost:
    """The cost without a TPU compiler."""
    return _priced(roofline_costs, job)


def _priced(how: Callable[..., Cost], job: Job) -> Cost:
    one = job.build()
    return how(
        one.function, one.arguments, topology=job.topology, out_shardings=one.results, donate=one.donate, name=one.name
    )


# --- what is committed ---------------------------------------------------------------------------------------


def file_of(key: str) -> Path:
    """The file of a key: `LM-3B/middle16/forward; ...` is in costs-lm-3b.json."""
    return DATA / f"costs-{key.partition('/')[0].lower()}.json"


@cache
def committed(path: Path) -> dict[str, Cost]:
    return read(path)


def read(path: Path) -> dict[str, Cost]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Cost]) if path.exists() else {}
