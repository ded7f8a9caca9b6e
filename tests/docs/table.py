"""The commands that are run instead of those on a page, each with the reason. All others are run as they are
written."""

from __future__ import annotations

from typing import NamedTuple


class Substitute(NamedTuple):
    said: str  # matches the whole command, as a regular expression
    run: str
    why: str


INSTEAD = [
    Substitute(r"make demo", "python -m experiments.demo --out .", "it would set up an environment first"),
    Substitute(
        r"make ([a-z-]+)( .*)?",
        r'make -C "$ROOT" -n \1\2',
        "they set up, test or measure everything: what they would do",
    ),
    Substitute(r"\.ci/run", 'bash -n "$ROOT/.ci/run"', "all tests, on every Python"),
    Substitute(r"(python -m experiments fig5)", r"\1 --hosts 2,8 --jobs 1 --out fig5", "fewer hosts: minutes else"),
    Substitute(r"(python -m experiments fig9 .*)", r"\1 --gangs 300 --jobs 1 --out fig9", "as fig5"),
    Substitute(r"(python -m experiments\.bench)\b( [a-z]+)?.*", r"\1\2 --help", "minutes; each has tests of its own"),
    Substitute(r"(python -m tests\.fuzz) --seeds 10000", r"\1 --seeds 3", "an hour; tests/test_fuzz.py plays 170"),
    Substitute(r"(python -m tests\.fuzz) --planted", r"\1 --help", "minutes; tests/test_fuzz.py has its parts"),
    Substitute(r"(python -m tests\.hostile)\b.*", r"\1 --help", "minutes; tests/test_hostile.py opens hundreds"),
    Substitute(r"(python -m tests\.chaos)\b.*", r"\1 --help", "minutes; tests/test_chaos.py plays three faults"),
    Substitute(r"(python -m tests\.backend\.door\.checks)", r"\1 scalars", "a minute; test_checks.py runs all of them"),
    Substitute(r"(?s).*(examples/door/tunix_grpo\.py).*", r'python -m py_compile "$ROOT/\1"', "Tunix is not here"),
    Substitute(
        r"((?:python -m )?seaway (?:up|controller)\b(?!.*--bind).*)",
        r"\1 --bind 127.0.0.1:29000",
        "to be put on a port that is free",
    ),
    Substitute(r"(seaway top) (.*)", r"\1 127.0.0.1:29000 \2", "the cluster is at a port that is free"),
    Substitute(r"ENABLE_PATHWAYS_PERSISTENCE=1 python train\.py", "true", "the reader's; test_persistence.py runs one"),
    Substitute(r"ssh -L .*", r"seaway dashboard --help", "there is no other machine"),
    Substitute(r"(seaway dashboard)", r"\1 127.0.0.1:29000 --bind 127.0.0.1:0", "to be put on ports that are free"),
    Substitute(
        r"sbatch .*(docs/deploy/slurm\.sh)", r"bash -n \1", "there is no Slurm here; test_deploy_files.py runs it"
    ),
    Substitute(r"kubectl apply -k (\S+)", r"python -m json.tool \1/jobset.json", "nor Kubernetes; it reads that"),
    Substitute(r"kubectl create secret .*=(\w+)", r"test -s \1", "nor Kubernetes"),
]

# For commands and Python alike. Besides, ports 29000, 29001, ... are replaced by free ones.
SUBSTITUTED = {
    "0.0.0.0:": "127.0.0.1:",  # tests listen only on loopback
    "head:": "127.0.0.1:",  # there are no other machines
    "10.0.0.10:": "127.0.0.1:",
    "10.0.0.11:29001": "127.0.0.1:29002",  # both on one machine
    "--rank 1": "--rank 1 --name another",  # ... which has one name
    "--platform tpu": "--platform cpu --devices 4",  # there is no TPU
    'platform="cuda"': 'platform="cpu"',  # there is no GPU
}

# Commands that go on until they are told to end: what they print when they are ready. The test ends them.
OUTLIVES = {
    r"(?:python -m )?seaway controller\b": r"controller at \S+:",
    r"(?:python -m )?seaway agent\b": r"hosts \d.* at \S+",
    r"(?:python -m )?seaway up\b": r"seaway status \S+\n",
    r"(?:python -m )?seaway dashboard\b(?!.*--help)": r"#key=\S+\n",
    r"(?:python -m )?seaway door\b": r"IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS=true\n",
}

# Pages whose Python has a test of its own, with that test.
ELSEWHERE = {
    "docs/checkpoints.md": "tests/seaway/api/test_checkpoint_docs.py",  # saves, and a cluster of another size: slow
    "docs/costs.md": "tests/seaway/costs/test_costs_compiled.py",  # compiles
}

# Pages that are read in sections, each from its beginning. Other pages are read as a whole.
SECTIONS = ("README.md", "docs/deployment.md")

# Programs that not every machine has. Without them that unit is left out.
NEEDS = {"docs/deployment.md: Certificates": "openssl"}

# Units that take long, by name. Others do most of the same.
FULL = {
    "docs/backend.md", "docs/calibration.md", "docs/door.md", "docs/figures.md", "docs/parity.md", "docs/policies.md",
    "docs/whatif.md", "docs/workloads.md",
}  # fmt: skip

RECORD = """
import numpy as np, seaway as sw

step = sw.synthetic("step", devices=sw.slice(devices=4), duration="5ms")

def client(calls):
    sw.block_until_ready([step(np.float32(0)) for _ in range(calls)])

with sw.local(hosts=2, devices_per_host=2, platform="timed", policy="stride", record="run.log") as s:
    for name, calls in (("ann", 20), ("bob", 20), ("cy", 10)):
        s.spawn(client, calls, name=name)
"""

# Files and folders that a page takes for granted. They are made beforehand.
PREPARED = {"docs/whatif.md": RECORD}

# Commands whose output on a page is that of one machine, and has another shape elsewhere.
NOT_COMPARED = {
    "seaway whatif run.log --policy fifo --out folder": "how many digits and notes there are hangs on the record"
}

# Text that the page shows but that the block before it does not print, by its first line, with the test that checks it.
SHOWN_ELSEWHERE = {
    "the first decision that differs on island 'i0' is number 2": "tests/seaway/tools/parity/test_planted.py"
}
