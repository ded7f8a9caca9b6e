"""Policies of gangs that reserve devices: what tests of reservations play."""
