"""Which callers are admitted, with which proof, how often, and what their code may do.

access       what a process sends with its calls, and what it accepts: tokens, TLS, passes
accounts_file  who has an account, and how much it may have
call_turns   the share of a process's time that calls get, and which call is next
refusal_log  refused callers: logged and counted
trust        whether an agent trusts its clients' code
"""

from . import access, trust
from .access import OPTIONS, Access, AccessRefused, PortTaken, advertised, checked, is_loopback, place_of, reached, read
from .accounts_file import ROLES, new_token, read_accounts
from .call_turns import READING, SLICE, Busy, CallTurn, TurnGate
from .refusal_log import RefusalLogger, host_of
from .trust import Rules, add_options, rules_of
