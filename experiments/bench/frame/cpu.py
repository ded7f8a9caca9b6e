"""CPU times of this machine's processes and threads, as the system counts them."""

from __future__ import annotations

import os
import threading
from collections import Counter

from backend.admin import threads_of


class ThreadCpu:
    """CPU times of threads, by name. Threads without a name of ours are "rest"."""

    def __init__(self, loop: threading.Thread, agents: dict[str, int]) -> None:
        self._mine = {threading.get_native_id(): "caller", loop.native_id or 0: "loop"}
        self._agents = agents

    def cpu(self) -> Counter[str]:
        """CPU nanoseconds."""
        found = Counter({f"user {name}": 0 for name in ("caller", "loop", "rest")})
        for number, (_, spent) in threads_of(os.getpid()).items():
            found[f"user {self._mine.get(number, 'rest')}"] += spent
        for agent, pid in self._agents.items():
            for number, (name, spent) in threads_of(pid).items():
                phase = "loop" if number == pid else name if name in ("enqueue", "completions") else "rest"
                found[f"{agent} {phase}"] += spent
        return found
