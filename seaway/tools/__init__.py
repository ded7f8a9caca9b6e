"""Tools built on sessions and recorded runs: `parity/`, `whatif/`, `calibrating/`, `sweeping/`, with a command each."""

from __future__ import annotations
