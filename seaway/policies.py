"""Policies: they choose which client's gang enters an island's order next. docs/policies.md says how to write one.

Name one, with its options (`policy="stride:lead=3"`), or pass a class, or an instance. Each island gets its own:

    >>> with sw.simulate("B", hosts=2, policy=sw.policies.Priority(age=10_000_000)) as s:
    ...     with s.client("urgent", priority=1):
    ...         step = sw.synthetic("step", devices=4, duration="1ms")
    ...         _ = step(np.float32(0)).block_until_ready()

Your own is a subclass of `Policy` with a `pick`. It gets what is `Ready`, and returns one `Ticket` of it:

    >>> class Smallest(sw.policies.Policy):
    ...     def pick(self, ready, now):
    ...         return min(ready.heads(), key=lambda ticket: (ticket.cost * ticket.devices, ticket.age))
    >>> with sw.simulate("B", hosts=2, policy=Smallest) as s:
    ...     _ = step(np.float32(0)).block_until_ready()
"""

from core.schedule.policy import (
    Deadline,
    Fifo,
    Policy,
    Priority,
    Ready,
    RoundRobin,
    Shortest,
    Stride,
    Ticket,
    named,
)

__all__ = [
    "Deadline",
    "Fifo",
    "Policy",
    "Priority",
    "Ready",
    "RoundRobin",
    "Shortest",
    "Stride",
    "Ticket",
    "named",
]
