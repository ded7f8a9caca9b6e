"""Slices and shardings are declarations in JAX's terms."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

import seaway as sw
from core.model.program import Sharding
from seaway.specs.avals import aval
from seaway.specs.shardings import named, resolve

P: Any = PartitionSpec  # which has no types


def test_a_slice_is_a_number_of_devices_or_a_mesh() -> None:
    assert sw.slice(devices=8).shape == (8,)
    assert sw.slice(mesh=(4, 2)).axis_names == ("x", "y")
    grid = sw.slice(mesh={"data": 4, "model": 2})
    assert (grid.devices, grid.shape, grid.axis_names) == (8, (4, 2), ("data", "model"))


def test_a_slice_can_be_made_from_a_jax_mesh() -> None:
    mesh = AbstractMesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    assert sw.slice(mesh=mesh).shape == (2, 4)
    assert sw.slice(mesh=mesh).mesh == mesh


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "needs `devices`"),
        ({"devices": 0}, "at least 1"),
        ({"devices": 2.0}, "whole number"),
        ({"devices": 7, "mesh": (4, 2)}, "that mesh has 8 devices"),
        ({"mesh": {"data": 0}}, "at least 1"),
        ({"devices": 2, "layout": "wide"}, "'packed' .* or 'spread'"),
    ],
)
def test_an_invalid_slice_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sw.slice(**wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"island": 0}, r"sw\.slice\(island=0\): island is a name, such as 'i0'"),
        ({"kind": 4}, r"sw\.slice\(kind=4\): kind is a name, such as 'tpu-v3'"),
        ({"name": None}, r"sw\.slice\(name=None\): name is a name, such as"),
        ({"exclusive": "no"}, r"sw\.slice\(exclusive='no'\): True or False"),
        ({"mesh": 4}, r"sw\.slice\(mesh=4\): devices along each axis"),
    ],
)
def test_an_argument_of_the_wrong_type_is_refused_where_it_is_written(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        sw.slice(**{"devices": 2, **wrong})


def test_shardings_are_partition_specs_over_the_slices_axes() -> None:
    grid = sw.slice(mesh={"data": 4, "model": 2})
    array = aval((8, 6), "float32")
    spec = P("data", None)
    assert resolve(spec, grid, array, "x") == Sharding(((0,), ()))
    assert resolve(P(("data", "model")), grid, array, "x") == Sharding(((0, 1), ()))
    assert resolve(None, grid, array, "x") == resolve(P(), grid, array, "x") == Sharding()
    assert resolve(NamedSharding(grid.mesh, spec), grid, array, "x") == Sharding(((0,), ()))
    assert resolve(grid.sharding("data"), grid, array, "x") == Sharding(((0,), ()))


def test_shardings_convert_to_core_and_back() -> None:
    grid = sw.slice(mesh={"data": 4, "model": 2})
    for spec in (P("data", None), P(None, ("data", "model")), P()):
        sharding = resolve(spec, grid, aval((8, 8), "float32"), "x")
        assert named(sharding, grid) == NamedSharding(grid.mesh, spec)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (P("modle"), "no axis 'modle'.*did you mean 'model'"),
        (P("data"), "does not divide by 4.*nearest sizes that do: 4 and 8"),
        (P(None, None, "data"), "names 3 dimensions"),
    ],
)
def test_a_sharding_that_does_not_fit_is_refused_with_one_that_would(spec: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        resolve(spec, sw.slice(mesh={"data": 4, "model": 2}), aval((6, 8), "float32"), "x")


def test_a_sharding_over_another_mesh_is_refused() -> None:
    other = sw.slice(mesh={"x": 8}).sharding("x")
    with pytest.raises(ValueError, match="a mesh x=8 does not fit"):
        resolve(other, sw.slice(mesh={"data": 4, "model": 2}), aval((8,), "float32"), "x")


def test_the_mesh_of_a_slice_needs_no_devices() -> None:
    assert sw.slice(devices=4096).mesh.size == 4096 > len(jax.devices())
