"""Decides which gang enters an island's order next.

scheduler    one for each island: offers the gangs that may enter to the policy, one choice at a time
contention   which gangs compete for which devices
reservations what a policy keeps free, and for how long at most;  outlook: what it is shown for that
waits        why a gang waits
policy/      fifo, stride, priority, ...: picks one of the gangs that may enter
"""

from .contention import Window
from .reservations import Reservation
from .scheduler import EarlyEntry, Scheduler, Ticket
from .waits import GangQueue, WaitingGang
