"""How fast the simulator is, and what its traces and its fuzzer cost."""
