"""One client as a machine: the user's calls go in, messages and effects come out, and nothing waits for an answer.

    the user --submit, put, get--> Client --Calls--> controller
    the user <--RunEnded, BuffersReady-- Client <--Notes-- controller

client             Client checks what the user calls and hands events on; neighbours: all below
call_batching      CallBatching decides when a call leaves, and which calls leave in one message; outgoing_calls
outgoing_calls     OutgoingCalls names what a call makes and enters it in the tables; client, retries, call_batching
retries            Retries makes runs and gets again when the cluster failed them; outgoing_calls, client_session
content_transfers  ContentTransfers moves what is put and got, to and from hosts; core's transfer, retries
client_session     ClientSession opens, closes and reopens the session, and hears its notes; all above but client
client_state       ClientState is all that a client knows of its session, as tables; read and written by all
client_limits      the bounds of a client (to_put: what travels in a call), the answers to its calls, its phases

The functions to read first: `Client.submit`, `CallBatching.call`, `ClientSession.came`, `Retries.ended`,
`ContentTransfers.follow`.
"""

from .client import Client
from .client_limits import Blocked, Limits, Submitted, to_put
from .retries import infrastructure
