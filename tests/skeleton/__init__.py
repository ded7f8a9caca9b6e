"""The walking skeleton: one gang through a minimal core under two throw-away drivers."""
