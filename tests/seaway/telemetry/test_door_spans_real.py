"""A door whose process has a tracer provider, as OpenTelemetry's launcher gives it one: spans of a real JAX program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.admin.children import environment
from experiments.bench.frame.deployed import deployed
from experiments.bench.frame.door_server import NAMES, VARIABLE
from tests.backend.door.jax_programs import program

DOOR = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

provider = TracerProvider()
exporter = ConsoleSpanExporter(out=open(sys.argv[1], "w"), formatter=lambda span: span.to_json(indent=None) + "\\n")
provider.add_span_processor(BatchSpanProcessor(exporter))
trace.set_tracer_provider(provider)

from seaway.cli import main

sys.exit(main(["door", *sys.argv[2:]]))
"""
PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

rows = NamedSharding(Mesh(np.array(jax.devices()), "x"), P("x"))
x = jax.device_put(np.ones((64, 512), np.float32), rows)

@jax.jit
def train_step(x):
    return x + x.mean()

for _ in range(3):
    x = train_step(x)
print(float(np.asarray(x)[0, 0]), flush=True)
"""


@pytest.mark.full
def test_the_calls_of_a_jax_program_are_spans_of_its_door(tmp_path: Path) -> None:
    spans = tmp_path / "spans"
    with deployed(2, controller=["--devices-per-host", "1"], devices=1) as cluster:
        words = ["--listen", f"unix:{tmp_path}/s", "--connect", cluster.address, "--name", "alice"]
        with subprocess.Popen(
            [sys.executable, "-c", DOOR, str(spans), *words], stdout=subprocess.PIPE, text=True,
            env=environment({"PYTHONWARNINGS": "ignore", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}),
        ) as door:  # fmt: skip
            assert door.stdout is not None
            env: dict[str, str] = {}
            while env.keys() != NAMES:
                line = door.stdout.readline()
                assert line, "the door did not start"
                env |= {name: value for name, value in VARIABLE.findall(line) if name in NAMES}
            with program(PROGRAM, env) as found:
                assert found.line() == "8.0", found.errors()
                assert found.process.wait(60) == 0
            door.terminate()
            assert door.wait(60) == 0
    made = [json.loads(line) for line in spans.read_text().splitlines()]
    names = [each["name"] for each in made]
    assert names.count("put") == 1
    assert names.count("get") == 1
    assert sum("train_step" in name for name in names) == 3, names
    assert {each["attributes"]["seaway.client"] for each in made} == {"alice"}
    assert {each["status"]["status_code"] for each in made} == {"UNSET"}
    assert {each["parent_id"] for each in made} == {None}
