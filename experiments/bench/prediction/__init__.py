"""How far predictions of the simulator are from real runs: by a calibrated cluster, and by a recorded session."""
