"""Faults put on a real cluster, drawn from one seed: `python -m tests.chaos --minutes 10`. docs/testing.md explains it.

schedule     the faults, their targets and times, as plain data: drawn from a seed, printed, and read back
processes    a process and its supervisor, which restarts it; what each holds (threads, fds, children, ports)
cluster      controller, agents and clients, as docs/deployment.md starts them
network      how they reach each other: through proxies
proxy        a TCP proxy between processes: cut, hold, one direction held, delay
machine_network   with `--machines`: each on a machine of its own; cuts, slow wires, clocks, full disks
slow_wire    a wire that is late, loses, or is narrow
machine_faults    what befalls one process there: its address, files, memory, state
memory_limit a control group for it
clock/       moves the clock of a Python process
looping      what all clients do, as processes of their own: call in a loop, and write a journal of it
clients      clients of Seaway
jax_clients  JAX programs that know nothing of Seaway, each with a door to the cluster
journal      the journal of a client: each call with its beginning, its end and its error
watching     the controller's status, asked again and again
inject       carries out a fault of the schedule
judge        compares a round of faults with the promises and the bounds
campaign     rounds, one after the other: wait, inject, wait, judge
report       the table
shrink       finds the shortest schedule that still fails
"""
