"""`python -m tests.seaway.tools.parity.recorded_agent`: an agent as a deployer starts it, with a `DeviceLog`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from backend.agent import agent_cli
from backend.agent.agent import Agent

from .device_log import DeviceLog

FOLDER = "SEAWAY_TEST_DEVICE_LOGS"  # the variable that names the folder
_made = agent_cli._agent


def _recorded(*about: Any, **options: Any) -> Agent:
    agent = _made(*about, **options)
    DeviceLog(Path(os.environ[FOLDER])).attach(agent)
    return agent


if __name__ == "__main__":
    agent_cli._agent = _recorded
    sys.exit(agent_cli.main())
