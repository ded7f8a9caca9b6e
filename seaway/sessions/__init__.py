"""Sessions and their clients. User calls go in and become calls of core's client; its replies become ready arrays.

session    the session that a user opens;  ambient: the session or client that a call is made in
caller     one client: it submits, fetches and waits
arrays     arrays as futures, and runs;  buffers: what the client knows of them;  arguments: the arguments of a call
port       the interface between a session and its driver: `simulated/` or `connected/`
deadlines  when runs are due;  replaced: the warning that a policy failed and fifo replaced it
"""

from . import ambient
from .arguments import checked_retries
from .array_groups import ClientBuffer, DescribedArray, Fetch
from .arrays import Array, CallResults, Run, all_of_one_call, block_until_ready, get
from .caller import Caller, PlacedContents
from .deadlines import deadline
from .replaced import text_of
from .session import Dispatch, Session, Task, client, current_session, now, sleep, spawn
