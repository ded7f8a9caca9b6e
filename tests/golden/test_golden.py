"""Each behaviour is played in the in-memory world and compared with its golden text, line by line.

`pytest tests/golden --rewrite` writes the texts anew; read the difference before you commit it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.world.world import World

from . import failing, running

TEXTS = Path(__file__).parent / "texts"


def behaviours() -> dict[str, Callable[[], World]]:
    found = {}
    for module in (running, failing):
        for name, value in vars(module).items():
            if callable(value) and getattr(value, "__module__", "") == module.__name__ and value.__doc__:
                if not name.startswith("_"):
                    found[name] = value
    return found


def played(behaviour: Callable[[], World]) -> str:
    world = behaviour()
    assert world.faults == []
    assert world.diary is not None
    title = " ".join((behaviour.__doc__ or "").split())
    return "\n".join([f"# {title}", "", *world.diary, ""])


@pytest.mark.parametrize("name", behaviours())
def test_a_behaviour_plays_as_its_golden_text_says(name: str, rewrite: bool) -> None:
    text = played(behaviours()[name])
    path = TEXTS / f"{name}.txt"
    if rewrite:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path.name} has not been written: run with --rewrite, and read it"
    assert text == path.read_text()


def test_every_golden_text_has_its_behaviour() -> None:
    assert {path.stem for path in TEXTS.glob("*.txt")} == set(behaviours())
