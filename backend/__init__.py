"""The backend: a driver that turns core's commands into gRPC messages and PJRT executions.

Nothing is here yet; it lands after core.
"""

__seaway__ = True
