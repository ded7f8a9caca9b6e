"""Checkpoints: sharded arrays in a folder that all hosts see, written and read by the hosts that have the shards.

    documents   a client's requests: the code of a computation; and folder and step, as its first argument
    folders     where a checkpoint may be, when it is complete, which is the latest
    chunks      how an array is cut into files, and which host writes which file
    leftovers   what dead saves have left, and how it is known that they are dead
    zarrs       the arrays, as zarr v3: written, read, and verified
    zarr2       arrays that are no step of ours, as zarr v2: in the folder that a program of the door's names
    metadata    its documents, with the checksums
    files       how a file is read that a stranger may have made, and written so that it lasts

A step of a checkpoint is a zarr group, `folder/step/`, with one array for each leaf of the tree. It is written under
another name, `step.partial-...`, and is renamed when all of it is on disk. `pjrt.checkpoints` knows devices.
"""

from . import chunks, documents, folders, leftovers, zarr2, zarrs
from .chunks import SMALLEST, Box, chunk_of
from .documents import LAST, ArrayEntry, CheckpointError, Discarded, Document, Request, check_name, request_of
from .files import READERS
from .folders import steps
