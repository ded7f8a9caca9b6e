"""Tools built on sessions and recorded runs: `parity/`, `whatif/` and `calibrating/`, with one command each."""

from __future__ import annotations
