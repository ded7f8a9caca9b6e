"""Runs command lines of `seaway` that are refused, each in a fork of one process: Python starts once for all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from backend.admin.children import environment

PATIENCE = 120.0  # seconds, on a busy machine
EACH = """
import json, os, sys, tempfile
from importlib import import_module
from seaway.cli import COMMANDS, main

def ended(words):
    sys.argv[1:] = words
    try:
        return main()
    except SystemExit as exit:
        return exit.code

found, lines = [], json.loads(sys.argv[1])
for words in lines:
    file = COMMANDS[words[0]]
    import_module(file if file.startswith("backend.") else f"seaway.cli.{file}")
for words in lines:
    with tempfile.TemporaryFile() as said:
        if not (child := os.fork()):
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            code = ended(words)
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        found.append((code, said.read().decode()))
print(json.dumps(found))
"""


class Refused(NamedTuple):
    code: int
    errors: str  # what it writes


def refused(lines: Sequence[Sequence[str]]) -> list[Refused]:
    """What becomes of each."""
    done = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps([list(words) for words in lines])], env=environment({}),
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [Refused(*each) for each in json.loads(done.stdout)]
