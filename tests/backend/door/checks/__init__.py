"""Checks of what a JAX program may do, for any backend: `python -m tests.backend.door.checks`.

`arrays`, `placing`, `running`, `parallel` and `refusals` hold the checks, `registry` their list. They know nothing of
the door: the environment chooses JAX's devices. Their number must be even.
"""
