"""What README shows is run: its Python, its links and its commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.presets import small
from tests.core.build import chain
from tests.world.world import World

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_policy_in_the_readme_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    scope: dict[str, object] = {}
    exec(code, scope)
    world = World(small(2, 1), policy=scope["Smallest"])  # type: ignore[arg-type]
    program = chain(2, devices=2)
    client = world.client("a")
    runs = [client.submit(program, bytes(program.args[0].nbytes)) for _ in range(3)]
    assert world.run()
    assert all(run.good for run in runs)
    assert not any("fifo" in line for line in world.told), "the policy was replaced"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)\)", path.read_text().replace("\n  ", " ")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} points to {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:^ {4}|`)make ([a-z-]+)", path.read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{path.name} names make {target}"
