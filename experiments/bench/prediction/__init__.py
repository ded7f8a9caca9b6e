"""How far predictions of the simulator, with a calibrated cluster, are from real runs."""
