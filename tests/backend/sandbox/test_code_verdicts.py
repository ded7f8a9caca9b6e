"""Which clients' code is trusted, and which verdicts on code are remembered."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

import pytest

from backend.agent import agent_cli
from backend.auth.access import AccessRefused
from backend.auth.trust import Rules, rules_of, words_of
from backend.sandbox import verdicts
from backend.sandbox.code_gate import CodeGate
from backend.sandbox.verdicts import Verdict, Verdicts
from core.model.plan import Gang
from seaway.cli import cluster

from .test_code_check import PATIENCE, WITHHELD, calling, check, good, pid_of, plan_of, refusal

__all__ = ["good"]  # a fixture


# --- what is remembered ---------------------------------------------------------------------------------------------


def test_code_is_checked_once_on_a_machine(tmp_path: Path, good: bytes) -> None:
    bad = calling(WITHHELD)
    first, second, third = (CodeGate(Rules(), "cpu", tmp_path) for _ in range(3))
    try:
        check(first, good, "one")
        assert "'one'" in refusal(first, bad, "one")
        check(second, good, "two", base=3)  # on other devices, under another name
        assert "computation 'two' is refused: it calls" in refusal(second, bad, "two")
        assert (first.checked, second.checked, pid_of(second)) == (2, 0, 0)
        for each in (tmp_path / verdicts.FOLDER).iterdir():
            each.write_text("what a full disk has left of it")
        check(third, good)
        assert third.checked == 1
    finally:
        for gate in (first, second, third):
            gate.checkers.close()


def test_a_verdict_holds_only_for_the_same_rules_and_versions(good: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _ = plan_of(good)
    gang = plan.steps[0]
    assert isinstance(gang, Gang)
    layouts = [slot.layout for slot in plan.slots[:1]]

    def key(rules: Rules, platform: str = "cpu") -> str:
        return CodeGate(rules, platform, None)._key(plan.codes[0], None, gang, layouts, layouts)

    here = key(Rules())
    assert key(Rules(seconds=1)) == here
    others = {key(Rules(("more",))), key(Rules(largest=1)), key(Rules(), "cuda")}
    monkeypatch.setattr("backend.sandbox.code_gate.VERSION", verdicts.VERSION + 1)
    assert len(others | {key(Rules())} - {here}) == 4


def test_verdicts_outlive_a_process_unless_the_check_itself_failed(tmp_path: Path) -> None:
    fine, wrong = Verdict("refused", "why"), Verdict("room")
    for verdict in (wrong, fine):
        with Verdicts(tmp_path).about("key", PATIENCE) as slot:
            assert slot.verdict is None
            slot.keep(verdict)
    with Verdicts(tmp_path).about("key", PATIENCE) as slot:
        assert slot.verdict == fine


def test_a_process_waits_a_while_for_another_that_checks_the_same_code(tmp_path: Path) -> None:
    ours, theirs = Verdicts(tmp_path), Verdicts(tmp_path)
    with theirs.about("key", PATIENCE) as slot:
        with ours.about("key", 0.05) as other:  # the other process is stuck
            assert other.verdict is None
        heard: list[Verdict | None] = []

        def wait() -> None:
            with ours.about("key", PATIENCE) as mine:
                heard.append(mine.verdict)

        waiting = threading.Thread(target=wait)
        waiting.start()
        slot.keep(Verdict("ok"))
    waiting.join(PATIENCE)
    assert heard == [Verdict("ok")]


def test_a_cache_folder_that_others_may_write_is_not_trusted(tmp_path: Path) -> None:
    folder = tmp_path / verdicts.FOLDER
    folder.mkdir()
    folder.chmod(0o777)
    with Verdicts(tmp_path).about("key", PATIENCE) as slot:
        slot.keep(Verdict("ok"))
    with Verdicts(tmp_path).about("key", PATIENCE) as slot:
        assert slot.verdict is None
    assert list(folder.iterdir()) == []


# --- which clients are trusted --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "trusted"),
    [
        ("", False),
        ("--with-parent", True),
        ("--with-parent --no-trust-clients", False),
        ("--with-parent --bind 0.0.0.0:1", False),
        ("--trust-clients --bind 0.0.0.0:1", True),
    ],
)
def test_clients_are_trusted_where_only_the_owner_can_connect(words: str, trusted: bool) -> None:
    chosen = agent_cli.options().parse_args(["--controller", "head:1", *words.split()])
    assert (rules_of(chosen) is None) is trusted


@pytest.mark.parametrize("words", [[], ["--trust-clients"], ["--no-trust-clients", "--allow-custom-call", "a"]])
def test_seaway_up_passes_its_trust_options_to_its_agents(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    cluster.add(parser.add_subparsers())
    assert words_of(parser.parse_args(["up", *words])) == words


def test_options_set_what_code_may_call_and_how_much_it_may_take() -> None:
    words = "--controller head:1 --allow-custom-call a --allow-custom-call b --check-seconds 5 --check-memory 7"
    assert rules_of(agent_cli.options().parse_args(words.split())) == Rules(("a", "b"), 5.0, 7)
    with pytest.raises(AccessRefused, match="--check-seconds"):
        rules_of(agent_cli.options().parse_args([*words.split(), "--check-seconds", "0"]))
