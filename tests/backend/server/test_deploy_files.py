"""The files in docs/deploy: read by the tools that are for them, where these are installed, and by us. Their command
lines are valid for our programs."""

from __future__ import annotations

import argparse
import configparser
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backend.agent import agent_cli
from backend.server import controller_cli

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "docs" / "deploy"
UNITS = ("seaway-controller.service", "seaway-agent.service")
PROGRAM = "/opt/seaway/bin/seaway"


def tool(*words: str, text: str = "") -> str:
    """What it says, output and errors. Skips the test where it is not installed."""
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    ran = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def chosen(words: list[str]) -> argparse.Namespace:
    """The options of `seaway controller ...` or `seaway agent ...`."""
    assert words[0] in ("seaway", PROGRAM)
    parsers = {"controller": controller_cli.options, "agent": agent_cli.options}
    return parsers[words[1]]().parse_args(words[2:])


# --- systemd --------------------------------------------------------------------------------------------------------


def unit(name: str) -> configparser.ConfigParser:
    read = configparser.ConfigParser(interpolation=None, strict=True)
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read_string((DEPLOY / name).read_text(encoding="utf-8"))
    return read


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for name in UNITS:
        text = (DEPLOY / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace(PROGRAM, sys.executable))  # it looks whether that can be run
    assert tool("systemd-analyze", "verify", *(str(tmp_path / name) for name in UNITS)) == ""


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_restarts_what_failed_and_not_what_was_drained(name: str) -> None:
    read = unit(name)
    service = read["Service"]
    assert service["Restart"] == "on-failure", "an agent that was drained ends with 0"
    assert "RestartForceExitStatus" not in service
    assert int(service["RestartSec"]) > 0
    assert read["Unit"]["StartLimitIntervalSec"] == "0"
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > agent_cli.GRACE
    for key in ("Wants", "After"):
        assert read["Unit"][key] == "network-online.target"


def test_units_start_programs_with_options_that_they_have_and_folders_that_systemd_makes() -> None:
    services = [unit(name)["Service"] for name in UNITS]
    controller, agent = (chosen(shlex.split(service["ExecStart"])) for service in services)
    assert controller.state == f"/var/lib/{services[0]['StateDirectory']}"
    assert agent.cache == f"/var/cache/{services[1]['CacheDirectory']}"
    assert {service["User"] for service in services} == {"seaway"}


# --- Kubernetes -----------------------------------------------------------------------------------------------------


def items() -> dict[str, dict[str, Any]]:
    """By kind."""
    found = json.loads((DEPLOY / "jobset.json").read_text(encoding="utf-8"))["items"]
    return {each["kind"]: each for each in found}


def jobs() -> list[dict[str, Any]]:
    found = items()["JobSet"]
    assert found["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    return found["spec"]["replicatedJobs"]  # type: ignore[no-any-return]


def pods() -> list[dict[str, Any]]:
    found = [job["template"]["spec"]["template"]["spec"] for job in jobs()]
    for pod in found:
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == volumes
    return found


def words_of(pod: dict[str, Any]) -> list[str]:
    command = pod["containers"][0]["command"]
    return command[command.index("seaway") :]  # type: ignore[no-any-return]


def test_the_jobset_starts_programs_with_options_that_they_have() -> None:
    controller, agent = pods()
    ruling, hosted = chosen(words_of(controller)), chosen(words_of(agent))
    named = {each["name"] for each in agent["containers"][0]["env"]}
    assert named == set(re.findall(r"\$\((\w+)\)", " ".join(words_of(agent))))
    mounted = {each["name"]: each["mountPath"] for each in controller["containers"][0]["volumeMounts"]}
    assert (ruling.cluster, hosted.island) == (f"{mounted['cluster']}/slices.toml", "slice$(SLICE)")
    ruling.cluster = str(DEPLOY / "slices.toml")
    islands = controller_cli.cluster_of(ruling).islands
    slices = jobs()[1]
    assert [island.name for island in islands] == [f"slice{number}" for number in range(slices["replicas"])]
    for island in islands:
        assert island.hosts == slices["template"]["spec"]["parallelism"]
        assert str(island.devices_per_host) == agent["containers"][0]["resources"]["limits"]["google.com/tpu"]


def test_the_controllers_state_is_on_a_volume() -> None:
    controller, _ = pods()
    (claim,) = (each["persistentVolumeClaim"] for each in controller["volumes"] if "persistentVolumeClaim" in each)
    assert claim["claimName"] == items()["PersistentVolumeClaim"]["metadata"]["name"]
    (mount,) = (each for each in controller["containers"][0]["volumeMounts"] if each["name"] == "state")
    assert chosen(words_of(controller)).state.startswith(f"{mount['mountPath']}/")


def test_a_lost_host_is_replaced_alone_and_only_slices_have_a_topology_for_themselves() -> None:
    found = items()["JobSet"]
    assert "failurePolicy" not in found["spec"], "it would recreate all jobs when one fails"
    for job in jobs():
        spec = job["template"]["spec"]
        assert (spec["completionMode"], spec["backoffLimit"]) == ("Indexed", 2**31 - 1)
        assert spec["parallelism"] == spec["completions"]
        assert spec["template"]["spec"]["restartPolicy"] == "OnFailure"
    key = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    assert key not in found["metadata"].get("annotations", {})
    assert [key in job["template"].get("metadata", {}).get("annotations", {}) for job in jobs()] == [False, True]


def test_an_agent_that_its_node_ends_fails_and_one_that_was_drained_has_succeeded() -> None:
    """Otherwise the job would not replace it: an agent's status is 0 on SIGTERM, too."""
    shell = pods()[1]["containers"][0]["command"][:4]
    for code in (0, 7):
        assert subprocess.run([*shell, "sh", "-c", f"exit {code}"], check=False).returncode == code
    told = "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); print(flush=True); signal.pause()"
    with subprocess.Popen([*shell, sys.executable, "-c", told], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 128 + signal.SIGTERM


def test_the_jobset_probes_the_controller_where_it_listens() -> None:
    container = pods()[0]["containers"][0]
    options = chosen(words_of(pods()[0]))
    for probe in ("startupProbe", "readinessProbe"):
        assert f"0.0.0.0:{container[probe]['grpc']['port']}" == options.bind
    health = container["livenessProbe"]["httpGet"]
    assert health["path"] == "/healthz"
    assert options.metrics_port == f"0.0.0.0:{health['port']}"
    assert {f"0.0.0.0:{each['containerPort']}" for each in container["ports"]} == {options.bind, options.metrics_port}


def test_kustomize_names_the_image_and_brings_the_clusters_file() -> None:
    made = tool("kubectl", "kustomize", str(DEPLOY))
    assert made.count("image: REGISTRY/seaway:VERSION") == 2
    assert "slices.toml: |" in made
    assert "name: seaway-cluster\n" in made


def test_kubernetes_schemas_allow_what_the_jobset_is_made_of(tmp_path: Path) -> None:
    """A JobSet's own schema comes with no tool. Its parts are jobs."""
    parts = [items()["PersistentVolumeClaim"]]
    for job in jobs():
        meta = {"name": job["name"], **job["template"].get("metadata", {})}
        parts.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job["template"]["spec"]})
    for number, part in enumerate(parts):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(part))
        tool("kubernetes-validate", "--strict", str(path))


# --- the image ------------------------------------------------------------------------------------------------------


def test_the_image_is_made_of_files_that_are_there_and_runs_as_nobody_special() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = [words for line in re.findall(r"^COPY (?!--)(.*)", text, re.MULTILINE) for words in line.split()[:-1]]
    assert all((ROOT / each).exists() for each in copied)
    packages = re.search(r"^packages = (\[.*\])", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert packages
    assert set(json.loads(packages[1])) <= set(copied)
    user = re.findall(r"^USER (\d+)$", text, re.MULTILINE)
    assert [int(each) for each in user] == [pods()[0]["securityContext"]["fsGroup"]]
    assert text.count("FROM ") == 2


def test_hadolint_finds_nothing_wrong_with_the_image() -> None:
    assert tool("hadolint", str(DEPLOY / "Dockerfile")) == ""
