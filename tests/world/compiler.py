"""The compiler of every host: how long code takes, whether it can be compiled, and what there is to say about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from core.model.plan import Gang, Plan
from core.model.topology import Cluster
from core.protocol.effects import CodeReady, CompileCode
from core.protocol.messages import Blame


class Compiler:
    """`plans`: by island and number."""

    def __init__(
        self, cluster: Cluster, plans: Mapping[tuple[int, int], Plan], usual: int, complain: Callable[[str], None]
    ) -> None:
        self._cluster, self._plans, self._usual, self._complain = cluster, plans, usual, complain
        self.bad: dict[str, str] = {}  # a code's name -> why no host can compile it
        self.failing: dict[tuple[int, str], int] = {}  # host, code's name -> how often it will fail to
        self.times: dict[str, int] = {}  # a code's name -> the time to compile it, if not the usual one
        self.more_about = b""  # what hosts say besides about code

    def time(self, host: int, asked: CompileCode) -> int:
        return self.times.get(self._name(host, asked), self._usual)

    def compiled(self, host: int, asked: CompileCode) -> CodeReady:
        why = self.bad.get(self._name(host, asked)) if self.bad else None
        if why:
            return CodeReady(asked.plan, asked.code, Blame("user", why))
        if left := self.failing.get((host, self._name(host, asked)), 0):
            self.failing[host, self._name(host, asked)] = left - 1
            return CodeReady(asked.plan, asked.code, Blame("code", "the compiler was killed"))
        return CodeReady(asked.plan, asked.code, None, self._about(host, asked) if asked.about else b"")

    def _about(self, host: int, asked: CompileCode) -> bytes:
        """Which code it is, and for which devices it is compiled. Only one host must be asked."""
        plan = self._plan(host, asked)
        gang = plan.steps[plan.codes[asked.code].step]
        assert isinstance(gang, Gang)
        devices = list(gang.place.devices())
        if gang.node != 0 or self._cluster.host_of(devices[0]) != host:
            self._complain(f"host {host} is asked about the code of {gang.name!r}")
        return b"%s on %s" % (gang.name.encode(), ",".join(map(str, devices)).encode()) + self.more_about

    def _name(self, host: int, asked: CompileCode) -> str:
        return self._plan(host, asked).codes[asked.code].name

    def _plan(self, host: int, asked: CompileCode) -> Plan:
        return self._plans[self._cluster.island_of_host(host).index, asked.plan]
