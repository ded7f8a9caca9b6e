"""An agent finds its place in a TPU slice, and a cluster's file says what its devices have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backend.agent.agent_machine import TpuSeat, seat
from backend.auth.access import AccessRefused
from backend.node.calls import CallError
from backend.server import controller_cli
from backend.server.registry import Enrolment
from backend.wire.call_messages import Enrol
from core.model.errors import Impossible
from core.model.topology import GIB, Cluster, small


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({}, TpuSeat()),
        ({"TPU_WORKER_ID": "3", "TPU_WORKER_HOSTNAMES": "a,b,c,d"}, TpuSeat(3)),
        ({"TPU_WORKER_ID": "0", "MEGASCALE_SLICE_ID": "1"}, TpuSeat(0, "slice1")),
        ({"SLURM_PROCID": "2"}, TpuSeat(2)),
    ],
)
def test_an_agent_finds_its_place_from_the_environment(env: dict[str, str], found: TpuSeat) -> None:
    assert seat(env) == found


def test_contradictory_places_are_named() -> None:
    with pytest.raises(AccessRefused, match="TPU_WORKER_ID is 4, but TPU_WORKER_HOSTNAMES names only 2 hosts"):
        seat({"TPU_WORKER_ID": "4", "TPU_WORKER_HOSTNAMES": "a,b"})
    with pytest.raises(AccessRefused, match="TPU_WORKER_ID='x' is no whole number"):
        seat({"TPU_WORKER_ID": "x"})


def test_a_rank_becomes_a_place_in_an_island() -> None:
    enrolment = Enrolment(lambda: small(2, 4, 2), lambda host: False)

    def enrol(**more: Any) -> int:
        return enrolment.enrol(Enrol(f"{more}", 1, "a", "tpu", "v4", 4, 0, **more))

    assert enrol(island="i1", rank=1) == 3
    assert enrol(island="i0", rank=0) == 0
    with pytest.raises(CallError, match="rank 1 of which island"):
        enrol(rank=1)
    with pytest.raises(CallError, match="island 'i1' has hosts 0-1"):
        enrol(island="i1", rank=2)


# --- the file of a cluster ------------------------------------------------------------------------------------

MEASURED = """
name = "mine"
note = "measured here"

[[island]]
name = "local"
kind = "cpu"
hosts = 2
devices_per_host = 2

[machine]
cores = { value = 2, source = "this machine" }

[dcn]
latency = "40 us"

[[shared]]
hosts = true
controller = true

[profile]
like = "seaway"

[profile.costs]
send = 33000
"""


def cluster_of(path: Path) -> Cluster:
    return controller_cli.cluster_of(controller_cli.options().parse_args(["--cluster", str(path)]))


def test_a_simulators_file_configures_a_cluster_and_the_missing_parts_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MEASURED)
    assert cluster_of(path) == Cluster.from_table(
        {"island": [{"name": "local", "kind": "cpu", "hosts": 2, "devices_per_host": 2}]}
    )
    assert warnings_in(caplog) == [
        f"{path}: only the simulator reads name, note, machine, dcn, shared, profile; a real cluster leaves that out"
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"machin = 3", "the cluster has no key 'machin'; nearest: 'machine'"),
        (
            b"[[island]]\nname = 'a'\nhosts = 2",
            "island 1 of the table: Object missing required field `devices_per_host`",
        ),
        (b"[[island", "is no TOML"),
        (b"name = '\xff'", "is no TOML"),
        (b"", "a cluster needs an island"),
    ],
)
def test_an_invalid_file_is_named_with_the_mistake(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(text)
    with pytest.raises(Impossible) as refused:
        cluster_of(path)
    assert str(refused.value).startswith(str(path))
    assert says in str(refused.value)


# --- the memory of devices ------------------------------------------------------------------------------------


def islands(*stated: str | None) -> Enrolment:
    """Islands of one host with two devices each. None: their memory is not stated."""
    table = [
        {"name": f"i{number}", "hosts": 1, "devices_per_host": 2} | ({} if memory is None else {"memory": memory})
        for number, memory in enumerate(stated)
    ]
    cluster = Cluster.from_table({"island": table})
    return Enrolment(lambda: cluster, lambda host: False)


def agent(memory: int, platform: str = "cuda", **more: Any) -> Enrol:
    return Enrol(f"gpu{memory}", 1, "a", platform, "", 2, memory, **more)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("wanted", [{}, {"host": 0}, {"island": "i0"}])
def test_an_agent_with_less_memory_than_the_file_says_is_refused_with_both_figures(wanted: dict[str, Any]) -> None:
    enrolment = islands("16 GiB")
    with pytest.raises(CallError) as refused:
        enrolment.enrol(agent(8 * GIB, **wanted))
    text = str(refused.value)
    assert "agent 'gpu8589934592' has 8589934592 bytes (8.00 GiB) on each device" in text
    assert "the cluster's file says 17179869184 bytes (16.00 GiB) for island 'i0'" in text
    assert "Write memory = 8589934592 there" in text
    assert enrolment.agents() == {}, "its number is free for another agent"


def test_an_agent_that_comes_back_with_less_memory_is_refused_too() -> None:
    enrolment = islands("16 GiB")
    whole = Enrol("a", 1, "a", "cuda", "", 2, 20 * GIB)
    assert enrolment.enrol(whole) == 0
    with pytest.raises(CallError, match="on each device for programs"):
        enrolment.enrol(Enrol("a", 2, "a", "cuda", "", 2, 2 * GIB))
    assert enrolment.agents() == {0: whole}


def test_an_agent_takes_a_place_for_which_it_has_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    enrolment = islands("16 GiB", "8 GiB")
    assert enrolment.enrol(agent(8 * GIB)) == 1
    assert enrolment.enrol(agent(24 * GIB)) == 0, "memory beyond the stated amount is not used, and harms nothing"
    assert warnings_in(caplog) == []


def test_devices_of_unknown_memory_are_taken_at_the_files_word_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    enrolment = islands("16 GiB")
    for start in (1, 2):
        assert enrolment.enrol(Enrol("a", start, "a", "tpu", "", 2, 0)) == 0
    (warning,) = warnings_in(caplog)
    assert (
        "the cluster's file says 17179869184 bytes (16.00 GiB) for each of island 'i0', which is unchecked" in warning
    )


@pytest.mark.parametrize("platform", ["cpu", "timed"])
def test_devices_without_memory_of_their_own_cause_no_warning(platform: str, caplog: pytest.LogCaptureFixture) -> None:
    assert islands("16 GiB").enrol(agent(0, platform)) == 0
    assert islands(None).enrol(agent(0, platform)) == 0
    assert warnings_in(caplog) == []


@pytest.mark.parametrize("has", [8 * GIB, 80 * GIB])
def test_a_memory_that_differs_from_the_assumed_default_is_named(has: int, caplog: pytest.LogCaptureFixture) -> None:
    assert islands(None).enrol(agent(has)) == 0
    (warning,) = warnings_in(caplog)
    assert f"has {has} bytes" in warning
    assert "as if it were 17179869184 bytes (16.00 GiB), since no file says otherwise" in warning
    assert f"write memory = {has}" in warning
