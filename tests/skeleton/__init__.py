"""The walking skeleton: core's own machines under two throw-away drivers, one simulated and one real."""
