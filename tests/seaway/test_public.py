"""The public names, and how fast they are imported."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from importlib import import_module
from inspect import isfunction, signature
from typing import Any

import pytest

import seaway as sw
from seaway.specs import slices

HEAVY = ("jax", "numpy", "pandas", "matplotlib", "simpy", "pyarrow", "grpc", "tqdm", "opentelemetry")


NAMES = """
    simulate local connect slice jit pmap program synthetic pipeline stage put route checkpoint get
    block_until_ready client spawn current_session now sleep deadline fault Array ElasticSlice Run Session Slice costs
    errors policies trace workload __version__
"""
FACE = NAMES.split()
MODULES = {
    "errors": """
        SeawayError Impossible ProgramError TracedValueError NoContents NoSession SessionClosed NotNow Stalled RunError
        Cancelled Unreachable NotReady CostError NoCompiler TooBig NotATrace WrongPolicy
    """,
    "policies": """
        Policy Ready Ticket RunningGang Reserve SliceUse Fifo Stride RoundRobin Priority Shortest Deadline named
        Placement ClusterView IslandUse InTurn FirstFit BestFit BestKind Spread NEVER names check
    """,
    "costs": "Cost IdleCluster MemoryUse costs duration roofline_costs synthetic text_costs tpu_costs units work_of",
    "trace": "Trace joined of_setup step_table times",
    "workload": """
        Arrival Arrivals Job JobReport Jobs LoadReport chakra failures failures_of helios load pai philly poisson
        poisson_jobs requests stragglers
    """,
}


def test_the_public_names_are_these() -> None:
    assert sorted(sw.__all__) == sorted(FACE)
    assert sorted(FACE) == sorted([*sw._HOME, *sw._MODULES, "__version__"])
    for name in FACE:
        assert getattr(sw, name) is not None
        assert name in dir(sw)


@pytest.mark.parametrize("name", [name for name in FACE if isfunction(getattr(sw, name)) and name != "spawn"])
def test_a_misspelt_option_is_named_with_the_nearest(name: str) -> None:
    """Those of what `sw.spawn` calls are its own."""
    function: Any = getattr(sw, name)
    options = [each for each in signature(function).parameters.values() if each.kind is not each.VAR_KEYWORD]
    for option in [each.name for each in options if len(each.name) > 4]:
        wrong = option[:2] + option[3:]
        with pytest.raises((TypeError, sw.errors.Impossible)) as caught:
            function(**{wrong: 1})
        assert str(caught.value) == f"sw.{name} has no option {wrong!r} (did you mean {option!r}?)"


def test_public_functions_can_be_pickled_and_looked_into() -> None:
    assert pickle.loads(pickle.dumps(sw.slice)) is sw.slice
    assert next(iter(signature(sw.slice).parameters)) == "devices"
    assert inspect.getdoc(sw.slice) == inspect.getdoc(slices.slice)


@pytest.mark.parametrize("module", MODULES)
def test_the_names_of_each_public_module_are_these(module: str) -> None:
    found = getattr(sw, module)
    assert sorted(found.__all__) == sorted(MODULES[module].split())
    for name in found.__all__:
        assert getattr(found, name) is not None


def test_every_error_is_a_seaway_error() -> None:
    for name in sw.errors.__all__:
        assert issubclass(getattr(sw.errors, name), sw.errors.SeawayError)


ELSEWHERE = [(name, f"sw.{module}.{name}") for module, names in sw._ELSEWHERE.items() for name in names]


@pytest.mark.parametrize(("name", "place"), [*ELSEWHERE, *((name, sw._PLACE[name]) for name in ("Noise", "Program"))])
def test_a_name_that_has_moved_says_where_it_is(name: str, place: str) -> None:
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; it is {place}$"):
        getattr(sw, name)
    home, _, last = place.replace("sw.", "seaway.", 1).rpartition(".")
    assert hasattr(import_module(home), last)


def test_importing_seaway_imports_nothing_heavy() -> None:
    code = f"import sys, seaway; print([name for name in {HEAVY} if name in sys.modules])"
    assert _said(code) == "[]"


SYNTHETIC = """
import sys
import numpy as np
import seaway as sw
step = sw.synthetic("step", devices=sw.slice(devices=8), duration="1ms")
both = sw.program(lambda pair, more: (step(pair), {"more": step(more["x"])}))
x = np.zeros(4, np.float32)
with sw.simulate("B", hosts=4) as s:
    step(x).block_until_ready()
    first, second = step(x, 1.0)
    made = both((first, second), {"x": sw.put(x, devices=step.slice)})
    sw.block_until_ready(made)
"""


def test_simulating_synthetic_work_imports_only_what_it_needs_and_a_call_is_the_same_once_jax_is_imported() -> None:
    """Among the rest are pandas and matplotlib, which traces need, and JAX, which `sw.jit` needs."""
    rest = sorted({*HEAVY} - {"numpy", "simpy"})
    again = f"""
    print([name for name in {rest} if name in sys.modules])
    before = len(step._known), len(both._known)
    import jax
    sw.block_until_ready([step(x), step(x, 1.0), both((first, second), {{"x": x}})])
    print(before == (len(step._known), len(both._known)))
"""
    assert _said(SYNTHETIC + again) == "[]\nTrue"


def _said(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_missing_name_is_an_error_that_suggests_another() -> None:
    with pytest.raises(AttributeError, match="did you mean 'synthetic'"):
        sw.syntetic  # noqa: B018
    with pytest.raises(AttributeError, match=r"did you mean sw\.policies\.Stride\?"):
        sw.Strid  # noqa: B018
    with pytest.raises(AttributeError, match=r"it is sw\.now, in seconds"):
        sw.now_ns  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'xyzzy'$"):
        sw.xyzzy  # noqa: B018


def test_names_are_not_hidden_by_modules() -> None:
    """A module with the name of a function would replace it as soon as it is imported."""
    import pkgutil

    modules = {module.name for module in pkgutil.iter_modules(sw.__path__)}
    assert modules & set(sw.__all__) == set(sw._MODULES)
