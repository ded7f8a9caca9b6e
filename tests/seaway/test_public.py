"""What a user sees: the names, and how fast they come."""

from __future__ import annotations

import subprocess
import sys

import pytest

import seaway as sw

HEAVY = ("jax", "numpy", "pandas", "matplotlib", "simpy", "pyarrow", "grpc", "tqdm")


def test_every_public_name_is_there() -> None:
    for name in sw.__all__:
        assert getattr(sw, name) is not None
        assert name in dir(sw)


def test_the_table_of_homes_is_the_list_of_names() -> None:
    assert sorted(sw.__all__) == sorted([*sw._HOME, "__version__"])


def test_importing_it_imports_nothing_heavy() -> None:
    code = f"import sys, seaway; print([name for name in {HEAVY} if name in sys.modules])"
    assert _said(code) == "[]"


def test_declaring_synthetic_work_does_not_need_jax() -> None:
    code = (
        "import sys, seaway as sw; step = sw.synthetic('step', devices=8, duration='330us', allreduce='4B'); "
        "print('jax' in sys.modules, 'pandas' in sys.modules)"
    )
    assert _said(code) == "False False"


def _said(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_name_that_is_not_there_says_which_is() -> None:
    with pytest.raises(AttributeError, match="did you mean 'synthetic'"):
        sw.syntetic  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'xyzzy'$"):
        sw.xyzzy  # noqa: B018


def test_names_are_not_hidden_by_modules() -> None:
    """A module of the name of a function would take its place as soon as it is imported."""
    import pkgutil

    modules = {module.name for module in pkgutil.iter_modules(sw.__path__)}
    assert not modules & set(sw.__all__)
