"""What `pjrt_cases` and `pjrt_troubles` share: a host of eight CPU devices, and a program for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from core.model.place import Place, line
from core.model.plan import Layout
from core.model.program import Arg

from .pjrt_rig import Rig, Work, value

DEVICES = 8
MESH = (4, 2)
ROWS = value((8, 4), ("x", "y"))
COLUMNS = value((8, 4), ("y", ""))
WHOLE = value((8, 4))
HERE = line(0, 0, DEVICES)
ARRAY = np.arange(32, dtype=np.float32).reshape(8, 4)


def layout(like: Any, place: Place = HERE, mesh: tuple[int, ...] = MESH) -> Layout:
    return Layout(like.shape, like.dtype, place, mesh, like.sharding)


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    rig = Rig(DEVICES)
    yield rig
    rig.close()


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    yield shared
    shared.seen.clear()


def add_sum(x: Any) -> Any:
    return x + x.sum()


def adding(**options: Any) -> Work:
    work = Work(MESH, ROWS)
    work.call("add the sum", add_sum, [Arg(0)], [ROWS], [ROWS], **options)
    return work
