"""What a session on a cluster registers: programs that have the names of the functions that a user jitted."""

from __future__ import annotations

import pytest

from backend.door.cluster.cluster_programs import Places, SessionIsland, function_of
from backend.door.session.session_devices import StatusError


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("jit_train_step", "train_step"),
        ("pmap_train_step", "train_step"),
        ("jit_jit_compile", "jit_compile"),  # the prefix is JAX's, the rest the user's
        ("jit__lambda_", "_lambda_"),
        ("jit_", "jit_"),
        ("main", "main"),
    ],
)
def test_a_program_has_its_functions_name(module: str, name: str) -> None:
    assert function_of(module) == name


def test_rows_of_devices_are_parts_of_the_slice_of_their_island() -> None:
    places = Places([SessionIsland("i0", 4)])
    whole, part = places.of((0, 1, 2, 3)), places.of((3, 1))
    assert whole == places.roots[0]
    assert (part.of, part.picks, part.devices) == (whole.name, (3, 1), 2)
    assert places.slices((3, 1), (3, 1)) == (whole, part)


def test_devices_are_numbered_island_by_island() -> None:
    places = Places([SessionIsland("i0", 4), SessionIsland("i1", 2)])
    first, second = places.roots
    assert places.slices((5,)) == (*places.opening, second, places.of((5,)))
    places.opening = ()
    assert [places.island_of(device) for device in range(6)] == [0, 0, 0, 0, 1, 1]
    assert places.of((4, 5)) == second
    assert (places.of((5,)).of, places.of((5,)).picks) == ("i1", (1,))
    assert places.slices((5,)) == (second, places.of((5,)))
    assert places.slices((1, 0), (4, 5)) == (first, second, places.of((1, 0)))
    with pytest.raises(StatusError, match=r"of islands 'i0' and 'i1', and a program or an array is on devices of one"):
        places.of((3, 4))


def test_a_row_of_one_island_is_alike_on_another_if_it_has_such_devices() -> None:
    places = Places([SessionIsland("i0", 4), SessionIsland("i1", 2), SessionIsland("i2", 4)])
    places.kinds = "v5e", "v5e", "v5e"
    assert places.alike((1, 0)) == [(5, 4), (7, 6)]
    assert places.alike((3,)) == [(9,)]
    assert places.alike((4, 5)) == [(0, 1), (6, 7)]
    places.kinds = "v5e", "v4", "v5e"
    assert places.alike((1, 0)) == [(7, 6)]
    assert places.alike((4, 5)) == []
