"""The fuzzer: each seed draws a cluster, the calls of its clients, and faults.

All invariants are checked after every event. Then all faults end, and every run that is left must end. Start it with
`python -m tests.fuzz --seeds 10000`; see docs/testing.md.
"""
