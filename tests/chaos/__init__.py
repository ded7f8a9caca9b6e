"""Faults put on a real cluster, drawn from one seed: `python -m tests.chaos --minutes 10`. docs/testing.md tells how.

schedule     what befalls whom when, as plain data: drawn from a seed, printed, and read back
processes    a process and its supervisor, which starts it again; what each holds (threads, fds, children, ports)
cluster      controller, agents and clients, as docs/deployment.md starts them
proxy        a TCP proxy between processes: cut, hold, one direction held, delay
clients      what a client does in its loop, as a process of its own, and the journal that it writes
journal      that journal: each call with its beginning, its end and its error
watching     the controller's status, asked again and again beside all the rest
inject       a fault of the schedule, carried out
judge        what a round of faults has shown, against the promises and the bounds
campaign     rounds, one after the other: wait, inject, wait, judge
report       the table;  shrink: the shortest schedule that still fails
"""
