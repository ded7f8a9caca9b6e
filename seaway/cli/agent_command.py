"""`seaway agent`: a host of a cluster."""

from __future__ import annotations

from typing import Any

from backend.agent import agent_cli

from .backend_programs import add_program


def add(commands: Any) -> None:
    add_program(commands, "agent", agent_cli)
