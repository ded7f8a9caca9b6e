"""A host's store: what one launch made is one record until one of it is used alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.pjrt.store import Store
from backend.pjrt.stored_buffers import OutputRow
from core.model import Layout, Sharding, line, shard_bytes


class OneHost:
    """A world of one host with two devices; shardings are the layouts themselves."""

    def sharding(self, layout: Layout) -> Any:
        return layout

    def here(self, place: Any) -> tuple[int, ...]:
        return (0, 1)


PLACE = line(0, 0, 2)
LAYOUTS = [Layout((at + 1,), "float32", PLACE, (2,), Sharding(((),))) for at in range(8)]
ROW = OutputRow(LAYOUTS, lambda layout: layout)


def made(store: Store, first: int, at: int = 0, count: int = 8) -> list[object]:
    arrays = [object() for _ in range(count)]
    store.made_together(first, ROW, at, list(arrays))
    return arrays


@pytest.fixture
def store() -> Store:
    return Store(OneHost(), None)  # type: ignore[arg-type]


def test_a_maker_that_fails_spoils_all_that_it_made(store: Store) -> None:
    record = store.made_together(10, ROW, 0, [object() for _ in range(8)])
    alone = store.get(12)
    store.free(10, 1)
    record.spoil("it failed")
    assert alone is not None
    for number in range(11, 18):
        held = store.get(number)
        assert held is not None
        assert (held.array, held.reason) == (None, "it failed")
    assert store.arrays(13, 2, ROW.lies[3:5]) is None


def test_what_is_free_keeps_nothing_alive(store: Store) -> None:
    record = store.made_together(10, ROW, 0, [object() for _ in range(8)])
    store.free(10, 8)
    assert (record.arrays, record.family) == ([], [])


Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(st.sampled_from(("make", "get", "free", "read", "spoil")), st.integers(0, 40), st.integers(1, 8)),
    max_size=40,
)


@given(steps)
def test_a_store_holds_what_it_would_hold_one_by_one(script: list[Step]) -> None:
    store, model = Store(OneHost(), None), dict[int, tuple[int, object]]()  # type: ignore[arg-type]
    for what, first, count in script:
        names = range(first, first + count)
        match what:
            case "make":
                arrays = made(store, first, 0, count)
                model |= {name: (at, array) for at, (name, array) in enumerate(zip(names, arrays, strict=True))}
            case "get":
                held = store.get(first)
                assert (None if held is None else held.array) == model.get(first, (0, None))[1]
            case "free":
                store.free(first, count)
                for name in names:
                    model.pop(name, None)
            case "spoil":
                store.spoil(first, "spoilt")
                if first in model:
                    model[first] = model[first][0], None
            case _:
                there = [model.get(name, (-1, None)) for name in names]
                found = store.arrays(first, count, [LAYOUTS[at] for at, _ in there])
                assert found == (None if any(array is None for _, array in there) else [array for _, array in there])
        assert len(store) == len(model)
        assert store.bytes.get(0, 0) == sum(shard_bytes(LAYOUTS[at]) for at, _ in model.values())
