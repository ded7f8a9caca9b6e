"""The fuzzer: one seed draws a cluster, what clients do and what befalls them; all invariants are checked after
every event, then all is mended and every surviving run must end. `python -m tests.fuzz --seeds 10000`; see
docs/testing.md."""
