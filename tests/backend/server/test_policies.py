"""`--policy` on any command line: one of Seaway's by name, the user's own from a module or a file, or one line that
says why not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.server.eventlogs import source_of
from backend.server.policy_loading import policy_from
from core.model.errors import Impossible
from core.schedule.policy import Fifo, Policy, Priority, RoundRobin, Stride

MINE = """
from core.schedule.policy import Policy, Priority
from helpers import DEPTH

class Mine(Policy):
    depth = DEPTH
    def pick(self, ready, now):
        return ready.best()

class Picky(Mine):
    def __init__(self, taste):
        self.taste = taste

def tuned():
    return Priority(age=5)

def nothing():
    return 3

made = Priority(age=7)
number = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with policies. It is the current folder and is not on Python's path."""
    (tmp_path / "mine_here.py").write_text(MINE)
    (tmp_path / "helpers.py").write_text("DEPTH = 4\n")
    (tmp_path / "broken_here.py").write_text("raise SystemExit('not today')\n")
    (tmp_path / "needy_here.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(tmp_path))])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("fifo", Fifo), ("stride:lead=3", Stride), ("Round-Robin:lead=2", RoundRobin), (" priority : age=2ms ", Priority)],
)
def test_built_in_policies_go_by_name_with_options(text: str, kind: type[Policy]) -> None:
    make = policy_from(text)
    assert type(make()) is kind
    assert make() is not make()


@pytest.mark.parametrize("where", ["mine_here", "mine_here.py", "./mine_here.py", "FOLDER/mine_here.py"])
@pytest.mark.parametrize(("name", "kind"), [("Mine", "Mine"), ("tuned", "Priority"), ("made", "Priority")])
def test_a_users_policy_is_found_in_a_module_of_this_folder_and_in_a_file(
    where: str, name: str, kind: str, here: Path
) -> None:
    path = list(sys.path)
    make = policy_from(f"{where.replace('FOLDER', str(here))}:{name}")
    made, other = make(), make()
    assert (type(made).__name__, made is not other) == (kind, True)
    assert made.depth == 4 if name == "Mine" else made.age == {"tuned": 5, "made": 7}[name]  # type: ignore[attr-defined]
    assert sys.path == path, "this folder was on the path for that look-up only"


def test_a_module_elsewhere_is_found_as_before(here: Path) -> None:
    assert type(policy_from("core.schedule.policy:Stride")()) is Stride
    assert type(policy_from("core.schedule.policy.stride:Stride")()) is Stride


def test_policy_files_of_the_same_name_are_kept_apart(here: Path) -> None:
    other = here / "other"
    other.mkdir()
    (other / "mine_here.py").write_text(MINE.replace("ready.best()", "ready.heads()[0]"))
    one, two = (type(policy_from(f"{path}:Mine")()) for path in (here / "mine_here.py", other / "mine_here.py"))
    assert source_of(one) != source_of(two)
    again = type(policy_from("mine_here.py:Mine")())
    assert source_of(again) == source_of(one)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("strid", "no policy is called 'strid'; there are fifo, stride"),
        ("strid", "(did you mean 'stride'?); one of your own is module:Class, or FILE.py:NAME"),
        ("stride:leed=3", "policy 'stride' has no option 'leed'; its options: lead (did you mean 'lead'?)"),
        ("", "no policy is called ''"),
        ("strid:lead=3", "no policy is called 'strid' (did you mean 'stride'?), and no module named 'strid' is in"),
        ("nowhere_here:Mine", "no module named 'nowhere_here' is in the current folder, or on PYTHONPATH"),
        ("core.nowhere:Mine", "no module named 'core.nowhere'"),
        (":Mine", "'' is no policy and no module's name; one of your own is module:Class, or FILE.py:NAME"),
        ("../mine_here:Mine", "'../mine_here' is no policy and no module's name"),
        ("mine_here:Mne", "module 'mine_here' has no 'Mne'; its policies: Mine, Picky"),
        ("mine_here.py:", "mine_here.py has no ''; its policies: Mine, Picky"),
        ("json:Nothing", "module 'json' has no 'Nothing'; it has no policy of its own"),
        ("mine_here.py", "which policy of that file? Write mine_here.py:NAME"),
        ("absent.py:Mine", "there is no file absent.py; there is broken_here.py, helpers.py, mine_here.py"),
        ("broken_here:Mine", "module 'broken_here' raises SystemExit: not today"),
        ("broken_here.py:Mine", "broken_here.py raises SystemExit: not today"),
        ("needy_here:Mine", "module 'needy_here' raises ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("needy_here.py:Mine", "needy_here.py raises ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("mine_here:nothing", "nothing() makes a int, which is no Policy: subclass sw.policies.Policy"),
        ("mine_here.py:number", "number is of type int; name a class, or a function that makes a policy"),
        ("mine_here.py:Picky", "Picky() raises TypeError: "),
        ("mine_here.py:Picky", "it is called without arguments; write a function that passes them"),
    ],
)
def test_a_wrong_policy_is_refused_with_the_forms_that_are_valid(text: str, says: str, here: Path) -> None:
    path, before = list(sys.path), set(sys.modules)
    with pytest.raises(Impossible) as caught:
        policy_from(text)
    said = str(caught.value)
    assert said.startswith(f"--policy {text}: ")
    assert says in said
    assert sys.path == path
    new = set(sys.modules) - before
    assert not [name for name in new if name.startswith("policy_file_") and "mine" not in name]


def test_the_error_names_the_option_that_was_used(here: Path) -> None:
    with pytest.raises(Impossible, match=r"^--recorded-policy absent\.py:Mine: there is no file absent\.py"):
        policy_from("absent.py:Mine", "--recorded-policy")
