"""What docs/deploy starts is what our programs take, and an agent finds its place in a TPU slice."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backend import controlling, hosting
from backend.access import Refused
from backend.calls import Enrol, Wrong
from backend.enrolment import Enrolment
from backend.tpu import Seat, seat
from core.presets import small

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"


def containers() -> list[dict[str, Any]]:
    found = json.loads((DEPLOY / "jobset.json").read_text())
    assert (found["apiVersion"], found["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    pods = [job["template"]["spec"]["template"]["spec"] for job in found["spec"]["replicatedJobs"]]
    for pod in pods:
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} <= volumes
    return [pod["containers"][0] for pod in pods]


def test_the_jobset_starts_programs_with_options_that_they_have() -> None:
    controller, agent = containers()
    assert controller["command"][:4] == ["python", "-m", "seaway", "controller"]
    assert agent["command"][:4] == ["python", "-m", "seaway", "agent"]
    ruling = controlling.options().parse_args(controller["command"][4:])
    hosted = hosting.options().parse_args(agent["command"][4:])
    assert f"i{ruling.islands - 1}" == "i1"
    assert hosted.island == "i$(SLICE)"
    assert {each["name"] for each in agent["env"]} == set(
        re.findall(r"\$\((\w+)\)", " ".join(agent["command"]))
    )
    jobs = json.loads((DEPLOY / "jobset.json").read_text())["spec"]["replicatedJobs"]
    slices = jobs[1]
    assert (slices["replicas"], slices["template"]["spec"]["parallelism"]) == (ruling.islands, ruling.hosts)
    assert agent["resources"]["limits"]["google.com/tpu"] == str(ruling.devices_per_host)


def test_the_jobset_probes_the_controller_where_it_listens() -> None:
    controller, _ = containers()
    bind = controlling.options().parse_args(controller["command"][4:]).bind
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert f"0.0.0.0:{controller[probe]['grpc']['port']}" == bind
    assert {"containerPort": 29000} in controller["ports"]


def test_the_slurm_script_is_a_script_with_options_that_our_programs_have() -> None:
    script = DEPLOY / "slurm.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    text = script.read_text()
    for program, options in (("controller", controlling.options()), ("agent", hosting.options())):
        known = {option for action in options._actions for option in action.option_strings}
        used = re.search(rf"seaway {program} ((?:[^&\n]|\\\n)*)", text)
        assert used
        flags = set(re.findall(r"--[a-z-]+", used[1]))
        assert flags
        assert flags <= known


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({}, Seat()),
        ({"TPU_WORKER_ID": "3", "TPU_WORKER_HOSTNAMES": "a,b,c,d"}, Seat(3, 4)),
        ({"TPU_WORKER_ID": "0", "MEGASCALE_SLICE_ID": "1"}, Seat(0, 0, "slice1")),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "8"}, Seat(2, 8)),
    ],
)
def test_an_agent_finds_its_place(env: dict[str, str], found: Seat) -> None:
    assert seat(env) == found


def test_contradictions_are_named() -> None:
    with pytest.raises(Refused, match="TPU_WORKER_ID is 4, and TPU_WORKER_HOSTNAMES names 2 hosts"):
        seat({"TPU_WORKER_ID": "4", "TPU_WORKER_HOSTNAMES": "a,b"})
    with pytest.raises(Refused, match="TPU_WORKER_ID='x': a whole number"):
        seat({"TPU_WORKER_ID": "x"})


def test_a_rank_is_a_place_in_an_island() -> None:
    enrolment = Enrolment(small(2, 4, 2), lambda host: False)

    def enrol(**more: Any) -> int:
        return enrolment.enrol(Enrol(f"{more}", 1, "a", "tpu", "v4", 4, 0, **more))

    assert enrol(island="i1", rank=1) == 3
    assert enrol(island="i0", rank=0) == 0
    with pytest.raises(Wrong, match="host 1 of which island"):
        enrol(rank=1)
    with pytest.raises(Wrong, match="island 'i1' has hosts 0-1"):
        enrol(island="i1", rank=2)
