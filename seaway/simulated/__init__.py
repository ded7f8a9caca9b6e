"""The simulated session: user code of many clients on one machine, one thread at a time, in simulated time."""
