"""Commands, options, keys and links that pages name exist. The commands that are run instead are still needed."""

from __future__ import annotations

import argparse
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from backend.auth import read_accounts
from core.model.topology import CLUSTER_KEYS, ISLAND_KEYS
from core.schedule.policy.base import Ticket
from experiments.bench.__main__ import BENCHES
from seaway import cli
from sim.hardware import setups
from sim.hardware.chips import CHIP_UNITS, MACHINE_UNITS
from sim.hardware.profiles import HEAD
from sim.hardware.shared_machines import KEYS as SHARED_KEYS

from .pages import FENCE, PAGES, ROOT, name_of, spans_of, units
from .table import INSTEAD, NOT_COMPARED, OUTLIVES, PREPARED, SHOWN_ELSEWHERE, SUBSTITUTED

EVERYWHERE = pytest.mark.parametrize("page", PAGES, ids=name_of)
COMMANDS = [block.text.partition("  #")[0].strip() for u in units() for block in u.blocks if block.kind == "command"]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


# --- the table ----------------------------------------------------------------------------------------------------


def test_each_replaced_command_is_still_on_a_page() -> None:
    idle = [each.said for each in INSTEAD if not any(re.fullmatch(each.said, command) for command in COMMANDS)]
    assert not idle, "no page has such a command any more"
    assert all(each.why for each in INSTEAD)


def test_substitutes_and_preparations_are_still_needed() -> None:
    everything = "\n".join(each.read_text(encoding="utf-8") for each in PAGES)
    assert [text for text in SUBSTITUTED if text not in everything] == []
    assert [begins for begins in OUTLIVES if not any(re.match(begins, command) for command in COMMANDS)] == []
    assert set(NOT_COMPARED) <= set(COMMANDS)
    assert set(PREPARED) <= {name_of(each) for each in PAGES}


@EVERYWHERE
def test_each_output_on_a_page_belongs_to_a_command(page: Path) -> None:
    """A text block is compared with what the block before it prints, or is in the table."""
    text = page.read_text(encoding="utf-8")
    shown = [fence for fence in FENCE.finditer(text) if fence[1] == "text" and not fence[3].startswith("$ ")]
    compared = [block.text for u in units() if u.page == page for block in u.blocks if block.kind == "said"]
    loose = [fence[3].splitlines()[0] for fence in shown if fence[3] not in compared]
    assert loose == [line for line in loose if line in SHOWN_ELSEWHERE]
    empty = [fence[3] for fence in shown if not fence[3].replace("...", "").strip()]
    assert not empty, "dots alone match anything"


# --- commands and options in the text -----------------------------------------------------------------------------


@cache
def commands() -> dict[str, set[str]]:
    """The commands of `seaway` with their options."""
    parser = argparse.ArgumentParser()
    added = parser.add_subparsers()
    cli.declare(added)
    return {
        name: {
            option for action in made._actions for option in action.option_strings if action.help != argparse.SUPPRESS
        }
        for name, made in added.choices.items()
    }


def wrong_with(command: str) -> str:
    """What is wrong with `seaway NAME --option ...`; "" if it might be right."""
    words = [word for word in re.split(r"\s+", command.replace("python -m seaway", "seaway", 1)) if word]
    if len(words) < 2 or not re.fullmatch(r"[a-z]+", words[1]):
        return ""
    if words[1] not in commands():
        return f"there is no command {words[1]!r}"
    strange = [word for word in words[2:] if word.startswith("--") and word != "--"]
    unknown = [word for word in strange if word.partition("=")[0] not in commands()[words[1]] | {"--help"}]
    return f"{words[1]} has no {unknown}" if unknown else ""


@EVERYWHERE
def test_commands_in_the_text_have_the_options_that_they_are_given(page: Path) -> None:
    named = [span for span in spans_of(page) if re.match(r"(python -m )?seaway [a-z]", span)]
    assert [(span, wrong_with(span)) for span in named if wrong_with(span)] == []


@EVERYWHERE
def test_prometheus_metrics_in_the_text_exist(page: Path) -> None:
    source = (ROOT / "backend" / "admin" / "metrics.py").read_text(encoding="utf-8")
    named = re.findall(r"\bseaway_([a-z_]+?)(?:_bucket)?\b", page.read_text(encoding="utf-8"))
    assert [name for name in named if f'"{name}"' not in source] == []


@EVERYWHERE
def test_benchmarks_in_the_text_exist(page: Path) -> None:
    named = re.findall(r"python -m experiments\.bench ([a-z]+)", page.read_text(encoding="utf-8"))
    assert set(named) <= set(BENCHES)


def test_a_wrong_option_is_noticed() -> None:
    assert wrong_with("seaway controler --bind x") == "there is no command 'controler'"
    assert wrong_with("python -m seaway agent --boss head:29000") == "agent has no ['--boss']"
    assert wrong_with("seaway agent --controller head:29000") == ""


@EVERYWHERE
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:^ {0,4}|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name} names make {target}"


# --- links --------------------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    bare = FENCE.sub("", path.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ +(.*)$", bare, re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head).lower() for head in heads]
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in plain}


@EVERYWHERE
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8")).replace("\n  ", " ")
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" in target:
            continue
        found = page.parent / target if target else page
        assert found.exists(), f"{page.name} points to {target}"
        assert not anchor or anchor in anchors(found), f"{page.name} points to {target}#{anchor}"


# --- lists that claim to be complete ---------------------------------------------------------------------------------


def listed(text: str) -> set[str]:
    return set(re.findall(r"`(?:\[+)?(-{0,2}[a-z][\w.-]*)", text))


def test_the_page_of_cluster_files_has_every_key() -> None:
    there = listed(page("clusters.md"))
    keys = {*ISLAND_KEYS, *CLUSTER_KEYS, *setups.KEYS, *setups.OVERRIDES, *setups.DCN_UNITS}
    keys |= {*MACHINE_UNITS, *CHIP_UNITS, *SHARED_KEYS, *HEAD, "oversubscription", "like"}
    assert sorted(keys - there - set(re.findall(r"^(\w+) =", page("clusters.md"), re.MULTILINE))) == []


@pytest.mark.parametrize("command", ["controller", "agent", "up"])
def test_the_page_of_deployment_has_every_option(command: str) -> None:
    there = listed(page("deployment.md"))
    options = {option for option in commands()[command] if option.startswith("--")}
    assert sorted(options - {"--help"} - there) == []


def test_the_page_of_policies_has_every_field_of_a_gang() -> None:
    inner = {"number", "state", "queue", "owner"}
    fields = {*Ticket.__struct_fields__, "age"} - inner
    assert sorted(fields - listed(page("policies.md"))) == []


def test_files_that_pages_show_can_be_read(tmp_path: Path) -> None:
    """TOML: a cluster, a part of one, a project, or accounts."""
    for each in PAGES:
        for fence in FENCE.finditer(each.read_text(encoding="utf-8")):
            if fence[1] == "toml":
                table = tomllib.loads(fence[3])
                if "project" in table:
                    continue  # a package's, which `pip` reads
                if "token_sha256" in fence[3]:
                    (tmp_path / "accounts.toml").write_text(fence[3])
                    assert read_accounts(str(tmp_path / "accounts.toml"))
                    continue
                setups.load({"island": [{"kind": "v4", "hosts": 256}], **table})


def test_the_readme_counts_the_papers_numbers_correctly() -> None:
    rows = page("figures.md").partition("|---|---:|---:|---|\n")[2].partition("\n\n")[0].splitlines()
    numbers = {12: "twelve", 4: "four", 8: "eight", 1: "one"}
    total, fitted = len(rows), sum("| fitted" in row for row in rows)
    missed = sum("**missed**" in row for row in rows)
    said = (
        f"of its {numbers[total]} numbers that we compare, {numbers[fitted]} are fitted and "
        f"{numbers[total - fitted]} predicted; {numbers[missed]} of these is missed"
    )
    assert said in (ROOT / "README.md").read_text(encoding="utf-8")
