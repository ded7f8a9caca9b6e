"""Real processes and devices of this machine: the paper's figures, order, transfers, memory and start."""
