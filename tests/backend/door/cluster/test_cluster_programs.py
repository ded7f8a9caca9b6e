"""What a session on a cluster registers: programs that have the names of the functions that a user jitted."""

from __future__ import annotations

import pytest

from backend.door.cluster.cluster_programs import Places, function_of


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


def test_rows_of_devices_are_parts_of_the_sessions_slice() -> None:
    places = Places(4, island="i0")
    whole, part = places.of((0, 1, 2, 3)), places.of((3, 1))
    assert whole == places.root
    assert (part.of, part.picks, part.devices) == (whole.name, (3, 1), 2)
    assert places.slices((3, 1), (3, 1)) == (whole, part)
