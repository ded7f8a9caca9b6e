"""An agent that writes down the order in which its devices got gangs: `python -m experiments.bench.real.witness`.

It is `python -m backend.agent.agent_cli` with `--witness FOLDER`. The folder gets a file for each host, with eight
bytes a gang: its number in the island's order, written when the enqueueing thread launches it. `order` reads the file.
"""

from __future__ import annotations

import argparse
import os
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backend.agent import agent_cli
from backend.pjrt import PjrtDevices


class Witnessed(PjrtDevices):
    def __init__(self, file: Path, **options: Any) -> None:
        super().__init__(**options)
        self._out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        launch = self._launcher.launch

        def witnessed(command: Any, plan: Any) -> None:
            """Launch a gang and write its number, in the enqueueing thread."""
            launch(command, plan)
            os.write(self._out, array("q", [command.seq]).tobytes())

        self._launcher.launch = witnessed  # type: ignore[method-assign]


def order_of(file: Path) -> list[int]:
    found = array("q")
    found.frombytes(file.read_bytes())
    return found.tolist()


def file_of(folder: Path, host: int) -> Path:
    return folder / f"host-{host}.order"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--witness", type=Path, required=True)
    mine, words = parser.parse_known_args(arguments)

    def devices_of(chosen: argparse.Namespace) -> PjrtDevices:
        return Witnessed(file_of(mine.witness, chosen.host), memory=chosen.memory)

    agent_cli.devices_of = devices_of
    return agent_cli.main(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
