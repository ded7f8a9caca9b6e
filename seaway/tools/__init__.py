"""Tools built on sessions and recorded runs: `parity/`, `whatif/`, `calibrating/`, `sweeping/`, with a command each."""
