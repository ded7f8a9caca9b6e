"""Decodes core's packed `Lists` of per-host times: many at once, one row for each distinct list.

Gangs that share a list share a row, so a trace in steady state is cheap to read. Where each gang has a list of its own,
lists are decoded a block at a time, so that memory does not grow with gangs times hosts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from core.record import Lists

from .times import Ints

Bytes = npt.NDArray[np.uint8]
BLOCK = 1 << 18  # numbers expanded at once: as many as fit a CPU cache
_TYPES = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<i8"}


def lists(column: Bytes, begins: Ints, count: int) -> tuple[Ints, Ints]:
    """(matrix of the distinct lists that start at `begins`, the row of each), for lists of `count` numbers."""
    starts, which = np.unique(begins, return_inverse=True)
    return _decoded(column, starts, count), which.reshape(-1)


def picked(column: Bytes, begins: Ints, count: int, pick: Callable[[Ints], Ints]) -> Ints:
    """For each of `begins` a row: what `pick` takes of its list of `count` numbers.

    `pick` turns a matrix of lists into one of as many rows. It is called once a block of distinct lists.
    """
    starts, which = np.unique(begins, return_inverse=True)
    step = max(1, BLOCK // max(1, count))
    blocks = [pick(_decoded(column, starts[at : at + step], count)) for at in range(0, len(starts), step)]
    return np.concatenate(blocks)[which.reshape(-1)]


def _decoded(column: Bytes, starts: Ints, count: int) -> Ints:
    head = Lists.HEAD.size
    lengths = _numbers(column, starts + 1, 1, 4)[:, 0]
    wrong = lengths != count
    if wrong.any():
        raise ValueError(
            f"the trace has {lengths[wrong][0]} arrivals of a gang on {count} hosts: its recorder left some out"
        )
    found = np.empty((len(starts), count), dtype=np.int64)
    widths = column[starts]
    for form in np.unique(widths).tolist():
        rows = widths == form
        at = starts[rows] + head
        if form & Lists.STEPS:
            steps = _numbers(column, at + Lists.OF_STEPS.size, count - 1, form & ~Lists.STEPS)
            base = _numbers(column, at, 2, 8)  # the smallest step, the first number
            found[rows, 0] = base[:, 1]
            found[rows, 1:] = base[:, 1:] + np.cumsum(steps + base[:, :1], axis=1)
        else:
            found[rows] = _numbers(column, at, count, form)
    return found


def _numbers(column: Bytes, at: Ints, count: int, width: int) -> Ints:
    """A matrix with `count` numbers of this width for each start."""
    # View the column as overlapping records, so that each is copied once.
    windows = np.lib.stride_tricks.sliding_window_view(column, count * width)
    records = windows[at]
    if width == 3:
        wide = np.zeros((len(at), count, 4), dtype=np.uint8)
        wide[:, :, :3] = records.reshape(len(at), count, 3)
        return wide.reshape(len(at), 4 * count).view("<u4").astype(np.int64)
    return records.view(_TYPES[width]).astype(np.int64)
