"""The book of costs: a job goes in, and the cost comes out that the TPU compiler gave it.

Costs are committed in experiments/data, a file a model. `python -m tests.experiments.price` adds costs to the book.
"""

from functools import cache
from pathlib import Path

import msgspec

from seaway.costs import Cost

from ..framework import BadOption
from .jobs import Job

DATA = Path(__file__).parent.parent / "data"


def cost(job: Job) -> Cost:
    """Raises BadOption if it has none."""
    known = committed(file_of(job.key)).get(job.key)
    if known is None:
        raise BadOption(
            f"the book of costs (experiments/data) has no {job.key!r}: take sizes that the paper prints or "
            f"docs/figures.md names; or add it, with the extra tpu and in a checkout: "
            f"python -m tests.experiments.price '{job.key}'"
        )
    return known


def file_of(key: str) -> Path:
    """The file of a key: `LM-3B/middle16/forward; ...` is in costs-lm-3b.json."""
    return DATA / f"costs-{key.partition('/')[0].lower()}.json"


def is_committed(job: Job) -> bool:
    return job.key in committed(file_of(job.key))


@cache
def committed(path: Path) -> dict[str, Cost]:
    return read(path)


def read(path: Path) -> dict[str, Cost]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Cost]) if path.exists() else {}
