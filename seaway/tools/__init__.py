"""What is built on sessions and recorded runs: `parity/`, `whatif/` and `calibrating/`, one command each."""

from __future__ import annotations
