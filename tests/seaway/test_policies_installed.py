"""A policy of an installed package has a name: in sessions, and on every command line that takes a policy.

The package is a folder on the path with a real dist-info, as pip leaves it."""

from __future__ import annotations

from pathlib import Path

import pytest

import seaway as sw
from backend.server import policy_from
from core.model import Impossible
from seaway.cli import main

ACME = """
from seaway.policies import Policy

class Newest(Policy):
    def __init__(self, depth=1):
        self.depth = depth
    def pick(self, ready, now):
        return max(ready.heads(), key=lambda gang: gang.number)

def needy(taste):
    return Newest()

def nothing():
    return 3
"""
NAMES = {"acme-newest": "Newest", "acme_needy": "needy", "acme-nothing": "nothing", "acme-gone": "Gone"}


def install(folder: Path, package: str, names: dict[str, str]) -> None:
    (folder / f"{package}_policies.py").write_text(ACME)
    about = folder / f"{package}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {package}_policies:{value}" for name, value in names.items()]
    (about / "entry_points.txt").write_text("\n".join(["[seaway.policies]", *lines, ""]))
    (about / "RECORD").write_text("")


@pytest.fixture(name="site")
def _site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path, "acme", NAMES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("site")
def test_it_is_known_by_its_name() -> None:
    assert sw.policies.names() == [
        "fifo", "stride", "priority", "shortest", "deadline", "round_robin",
        "first_fit", "in_turn", "best_fit", "best_kind", "spread",
        "acme_newest", "acme_needy", "acme_nothing", "acme_gone",
    ]  # fmt: skip
    made = sw.policies.named("acme-newest:depth=4")
    assert type(made).__name__ == "Newest"
    assert vars(made) == {"depth": 4}
    assert type(policy_from("Acme-Newest")()).__name__ == "Newest"


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("acme-oldest", r"no policy is called 'acme_oldest'; there are fifo, .*, acme_newest, acme_needy.* \(did you "),
        (
            "acme-newest:width=4",
            r"policy 'acme_newest', which is acme_policies:Newest of an installed package, cannot be",
        ),
        ("acme-newest:depth=wide", "'wide' for option 'depth' of policy 'acme_newest': give a whole number"),
        ("acme-needy", "cannot be made: TypeError: needy.. missing 1 required positional argument: 'taste'"),
        ("acme-nothing", "makes a int, which is no Policy"),
        ("acme-gone", "cannot be made: AttributeError: module 'acme_policies' has no attribute 'Gone'"),
    ],
)
def test_what_is_wrong_with_it_is_one_clear_error(name: str, error: str) -> None:
    with pytest.raises(Impossible, match=error):
        sw.simulate("B", policy=name)
    with pytest.raises(Impossible, match=f"^--policy {name}: .*{error}"):
        policy_from(name)


def test_two_packages_with_one_name_are_refused_only_if_it_is_asked_for(site: Path) -> None:
    install(site, "other", {"acme-newest": "Newest", "other-newest": "Newest"})
    with pytest.raises(Impossible, match=r"several policies 'acme_newest': .*_policies:Newest.*module:NAME"):
        sw.policies.named("acme-newest")
    assert type(sw.policies.named("other-newest")).__name__ == "Newest"


def test_a_name_of_seaways_own_cannot_be_taken(site: Path) -> None:
    install(site, "rude", {"fifo": "Newest"})
    assert type(sw.policies.named("fifo")) is sw.policies.Fifo


@pytest.mark.usefixtures("site")
def test_command_lines_take_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "once.py"
    program.write_text(
        "import numpy as np, seaway as sw\n"
        "sw.synthetic('step', devices=4, duration='1ms')(np.float32(0)).block_until_ready()\n"
    )
    assert main(["simulate", str(program), "--cluster", "B", "--policy", "acme-newest"]) == 0
    assert "1 run" in capsys.readouterr().out
    assert main(["simulate", str(program), "--cluster", "B", "--policy", "acme-never"]) == 1
    assert "best_kind, spread, acme_newest" in capsys.readouterr().err
