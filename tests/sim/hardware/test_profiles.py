"""Host costs: each is fitted to a named number or has a source, and changes keep that visible."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest

from core.model.errors import Impossible
from sim.hardware.profiles import COSTS, OPTIONAL, PAUSES, Profile, profile, profiles


def test_there_is_a_profile_of_the_paper_one_of_seaway_and_one_without_costs() -> None:
    assert list(profiles()) == ["ideal", "paper", "seaway"]
    paper, seaway = profile("paper"), profile("seaway")
    assert (paper.status, paper.fanout, seaway.status, seaway.fanout) == ("fitted", "flat", "measured", "tree")
    assert not seaway.fitted
    assert {cost: getattr(profile("ideal"), cost) for cost in COSTS if getattr(profile("ideal"), cost) > 0} == {
        "receive": 1
    }
    with pytest.raises(Impossible, match="no profile 'papper'; nearest: 'paper'"):
        profile("papper")


@pytest.mark.parametrize("name", ["paper", "seaway"])
def test_every_cost_states_its_fit_or_its_source(name: str) -> None:
    found = profile(name)
    assert {*COSTS, "hosts"} == {f.name for f in msgspec.structs.fields(Profile) if f.type is int}
    for cost in COSTS:
        if cost in OPTIONAL and getattr(found, cost) == Profile.__struct_defaults__[OPTIONAL.index(cost)]:
            assert cost not in found.sources
            continue
        assert getattr(found, cost) > 0 or found.sources[cost].startswith("of our backend")
        assert len(found.fitted.get(cost) or found.sources[cost]) > 15
        assert cost in found.describe()
    assert found.fitted.keys() <= set(COSTS)
    assert all("figure" in number or "Table" in number for number in found.fitted.values())


def test_the_papers_profile_is_the_line_through_figure_6() -> None:
    """2.3 ms at 16 hosts and 35 ms at 512: the slope is the cost of a message to each host and its answer.
    `experiments fig6` shows the simulation's result."""
    paper = profile("paper")
    slope = (35_000_000 - 2_300_000) / (512 - 16)
    assert paper.send + paper.receive == pytest.approx(slope, rel=0.01)
    assert set(paper.fitted) == {"send", "receive", "client_call"}


def test_a_changed_cost_is_no_longer_fitted() -> None:
    paper = profile("paper")
    twice = paper.changed(send=2 * paper.send)
    assert (twice.send, twice.receive) == (2 * paper.send, paper.receive)
    assert "send" not in twice.fitted
    assert twice.sources["send"] == "changed by the caller"
    assert twice.fitted.keys() | {"send"} == paper.fitted.keys()
    assert twice != paper
    for wrong in ({"sendd": 1}, {"send": -1}, {"send": 1.5}, {"send": True}):
        with pytest.raises(Impossible, match=r"no cost 'sendd'; nearest: 'send'|`send` cannot be"):
            paper.changed(**wrong)


def test_a_users_own_profile_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "quick.toml"
    file.write_text(
        'like = "paper"\nfanout = 8\nstatus = "measured"\n[costs]\nsend = "5 us"\n'
        'step = { value = 700, source = "perf" }\nsend_byte_ps = 10\n'
    )
    quick = profile(file)
    assert quick == profile(str(file))
    assert (quick.name, quick.fanout, quick.status) == ("quick", 8, "measured")
    assert (quick.send, quick.step, quick.send_byte_ps, quick.receive) == (5000, 700, 10, profile("paper").receive)
    assert (quick.sources["send"], quick.sources["step"]) == (f"stated in {file}", "perf")
    assert quick.fitted.keys() == {"receive", "client_call"}
    assert pickle.loads(pickle.dumps(quick)) == quick
    assert hash(pickle.loads(pickle.dumps(quick))) == hash(quick)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[costs]\nsend = 1", r"\[costs\] lacks client_call, .* or say which profile it is `like`"),
        ("like = 'paper'\n[costs]\nsent = 1", r"\[costs\] has no key 'sent'; nearest: 'send'"),
        ("like = 'paper'\nfan_out = 1", "has no key 'fan_out'; nearest: 'fanout'"),
        ("like = 'paper'\nfanout = 'wide'", "mine.toml: "),
        ("like = 'paper'\nfanout = 0", "`fanout` cannot be 0"),
        ("like = 'paper'\nstatus = 'sure'", "mine.toml: "),
        ("like = 'paper'\n[costs]\nsend = '5 MB'", "`send` cannot be '5 MB'; write '1.5 us'"),
        ("like = 'paper'\n[costs]\nsend = { source = 'x' }", "`send` has no `value`"),
        ("like = 'paper'\n[costs]\nsend = { value = 3, why = 'x' }", "has no key 'why'"),
        ("like = 'pepper'", "no profile 'pepper'; nearest: 'paper'"),
    ],
)
def test_mistakes_in_a_profile_file_are_named(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(Impossible, match=expected):
        profile(file)


def test_slower_cores_take_longer_for_all_costs_but_not_for_pauses() -> None:
    usual = profile("seaway")
    slow = usual.slower(1.5)
    for key in COSTS:
        one, other = getattr(usual, key), getattr(slow, key)
        if one <= 0 or key in PAUSES:
            assert other == one, key
        else:
            assert other == round(1.5 * one), key
    assert usual.slower(1.0).changed() == usual.slower(1.0)
