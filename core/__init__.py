"""The state machines: events in, commands out; no clock, no network, no device, no framework."""

__seaway__ = True
