"""`seaway controller`: the controller of a cluster."""

from __future__ import annotations

from typing import Any

from backend.server import controller_cli

from .backend_programs import add_program


def add(commands: Any) -> None:
    add_program(commands, "controller", controller_cli)
