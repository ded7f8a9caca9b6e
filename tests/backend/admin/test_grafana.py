"""docs/deploy/grafana.json asks for metrics that a controller has, and shows all but a few; a real Prometheus answers.

The metrics are those of a real cluster under load, read by the parser of Prometheus' own Python client.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import numpy as np
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

import seaway as sw
from backend.admin import metrics
from tests.backend.server.test_programs import PATIENCE, up

BOARD = json.loads((Path(__file__).parents[3] / "docs" / "deploy" / "grafana.json").read_text(encoding="utf-8"))
NOT_SHOWN = {
    "seaway_starts", "seaway_client_programs", "seaway_buffers", "seaway_record_lost", "seaway_code_bytes",
    "seaway_clock_offset_seconds", *(f"seaway_{name}" for name in metrics.ACCOUNTS),
}  # fmt: skip
ADDED = {"instance"}  # by Prometheus
CONFIG = """
global: {{scrape_interval: 500ms}}
scrape_configs: [{{job_name: seaway, static_configs: [{{targets: ["{place}"]}}]}}]
"""


def _get(url: str) -> str:
    with build_opener(ProxyHandler({})).open(url, timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
    return text


def _work(address: str, name: str, over: threading.Event) -> None:
    """Chains of gangs, one after the other."""
    with sw.connect(f"grpc://{address}", client=name):
        step = sw.synthetic("step", devices=sw.slice(devices=2), duration="2ms")
        while not over.is_set():
            x: Any = np.float32(0)
            for _ in range(3):
                x = step(x)
            x.block_until_ready()


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the metrics of a cluster on which two clients work."""
    folder, over = tmp_path_factory.mktemp("grafana"), threading.Event()
    words = ("--platform", "timed", "--hosts", "2", "--devices-per-host", "2", "--metrics-port", "0")
    with up(folder, *words, "--record", str(folder / "record")) as (process, address):
        assert process.stdout is not None
        while (found := re.search(r"metrics at (http://\S+)", process.stdout.readline())) is None:
            pass
        clients = [threading.Thread(target=_work, args=(address, name, over)) for name in ("ann", "bob")]
        for client in clients:
            client.start()
        try:
            until = time.monotonic() + PATIENCE
            while len(re.findall(r"^seaway_run_seconds_count.* [1-9]", _get(found[1]), re.MULTILINE)) < len(clients):
                assert time.monotonic() < until
                time.sleep(0.05)
            yield found[1]
        finally:
            over.set()
            for client in clients:
                client.join(PATIENCE)


@pytest.fixture(scope="module")
def families(figures: str) -> list[Metric]:
    return list(text_string_to_metric_families(_get(figures)))


def labels(families: list[Metric]) -> dict[str, set[str]]:
    """The labels of each metric that a controller has."""
    found: dict[str, set[str]] = defaultdict(set)
    for family in families:
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found


def targets() -> list[dict[str, str]]:
    return [target for panel in BOARD["panels"] for target in panel["targets"]]


def test_each_metric_has_its_kind_and_help_and_histograms_add_up(families: list[Metric]) -> None:
    assert len({family.name for family in families}) == len(families) > 30
    assert [family.name for family in families if family.type == "unknown" or not family.documentation] == []
    counted = [family for family in families if family.type == "histogram"]
    assert {family.name for family in counted} == {
        "seaway_gang_seconds",
        "seaway_run_seconds",
        "seaway_run_wait_seconds",
    }
    for family in counted:
        rows: dict[frozenset[tuple[str, str]], dict[str, Any]] = defaultdict(lambda: {"buckets": []})
        for name, of, value, *_ in family.samples:
            row = rows[frozenset(each for each in of.items() if each[0] != "le")]
            kind = name.removeprefix(f"{family.name}_")
            if kind == "bucket":
                row["buckets"].append((float(of["le"]), value))
            else:
                row[kind] = value
        for row in rows.values():
            assert all(low[0] < high[0] and low[1] <= high[1] for low, high in pairwise(row["buckets"]))
            assert row["buckets"][-1] == (math.inf, row["count"])
            assert row["count"] > 0 < row["sum"]


def test_each_metric_and_label_of_the_board_exists(families: list[Metric]) -> None:
    known = labels(families)
    asked = {name for target in targets() for name in re.findall(r"seaway_\w+", target["expr"])}
    assert len(asked) > 20
    assert sorted(asked - known.keys()) == []
    for target in targets():
        (name, *_) = re.findall(r"seaway_\w+", target["expr"])
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        selected = set(re.findall(r"(\w+)=~?\"", target["expr"]))
        assert shown | selected - ADDED <= known[name] | ADDED, target


def test_a_metric_that_the_board_leaves_out_is_left_out_on_purpose(families: list[Metric]) -> None:
    shown = {name for target in targets() for name in re.findall(r"seaway_\w+", target["expr"])}
    shown |= {name for each in BOARD["templating"]["list"] for name in re.findall(r"seaway_\w+", each["query"])}
    parts = {f"seaway_{name}{end}" for name in ("gang_seconds", "run_seconds", "run_wait_seconds")
             for end in ("_sum", "_count", "_bucket")}  # fmt: skip
    assert labels(families).keys() - shown - parts == NOT_SHOWN


# --- Prometheus itself --------------------------------------------------------------------------------------------


@pytest.fixture
def prometheus(figures: str, tmp_path: Path) -> Iterator[str]:
    """One that gets the figures twice a second."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("no prometheus and promtool on the path: Debian's package `prometheus` has them")
    config, log = tmp_path / "prometheus.yml", tmp_path / "log"
    config.write_text(CONFIG.format(place=figures.split("/")[2]))
    words = (f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}", "--web.listen-address=127.0.0.1:0")
    with log.open("w") as said:
        process = subprocess.Popen(["prometheus", *words], stdout=said, stderr=said)
    try:
        until = time.monotonic() + PATIENCE
        while (found := re.search(r'msg="Listening on" address=(127\.0\.0\.1:\d+)', log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        yield f"http://{found[1]}/api/v1"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_prometheus_finds_nothing_wrong_and_has_data_for_each_panel(figures: str, prometheus: str) -> None:
    words, text = ["promtool", "check", "metrics"], _get(figures)
    said = subprocess.run(words, check=False, input=text, capture_output=True, text=True)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")

    def asked(expression: str) -> list[float]:
        expression = expression.replace("$controller", ".*").replace("$__rate_interval", "10s")
        answer = json.loads(_get(f"{prometheus}/query?{urlencode({'query': expression})}"))
        return [float(each["value"][1]) for each in answer["data"]["result"]]

    lacking, until = [target["expr"] for target in targets()], time.monotonic() + PATIENCE
    while lacking := [each for each in lacking if not any(map(math.isfinite, asked(each)))]:
        assert time.monotonic() < until, lacking
        time.sleep(0.2)
    (busy,) = asked(next(panel for panel in BOARD["panels"] if "by island" in panel["title"])["targets"][0]["expr"])
    assert 0 < busy <= 1.1
