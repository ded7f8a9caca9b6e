"""Contents that travel beside core's messages: pieces of arrays, and compiled code.

shard_io        pieces of transfers, cut from shards and assembled again;  host_pieces: where they lie
code_blobs      code by the hash of its contents
stablehlo_code  code that is raw StableHLO, and what hosts say of it
callbacks       calls of programs into their clients' processes
staged_program  MPMD programs: several codes, each on its devices
"""

from . import callbacks, shard_io, stablehlo_code
from .callbacks import CALLBACK_S, CallbackFault
from .code_blobs import LATELY, LIMIT, Blobs, InUse, hash_of
from .host_pieces import HostPieces, local_shards
from .shard_io import Array, ArraySink, ContentsMismatch, Overflow, ShardSource, Shelf, Sink, cut
from .stablehlo_code import AboutError, CompiledAbout, PlatformAbout, PlatformDevice, StableHLOCode
from .staged_program import COPY, RESHARD, StagedCall, StagedProgram, StagedStep
