"""The harm that strangers and greedy clients do to others."""
