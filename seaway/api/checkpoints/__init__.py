"""`sw.checkpoint`: sharded arrays to files and back, straight from the hosts that have them.

    checkpoint   what a user calls: save, restore, latest
    graphs       what these are: programs of computations that hosts do with their files; names of leaves
    alone        the same computations on this machine, for simulations that compute

To core a save is a program like any other, so order, memory and errors are its affair; what is in the files, and what
hosts are told to do, is `backend.checkpoint`'s.
"""

from . import checkpoint
