"""`sw.policies.check`: plays a policy in random worlds, and shows the first thing that it does wrong.

random_worlds  gangs that come, on which devices: drawn from a seed
judge          stands between scheduler and policy, and judges each answer
playing        plays one world with core's own scheduler
placement_worlds, playing_placements   the same for slices that are asked for, and core's own controller
shrinking      makes a world in which something went wrong smaller, as long as the same goes wrong
checking       all of it, and what is said
"""

from .checking import CheckedPolicy, checked
