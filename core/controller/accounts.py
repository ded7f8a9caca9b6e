"""Accounts: whose each client is, what the clients of one account may have together, and what they have used.

The driver says whose a connection is (`PeerIdentified`) before it opens a session. If it never does, where one token
is for all, every client is of the account "", which has no limits, and has a share of its own.

What is over a limit is refused where it is asked for: a session is not opened, a slice not bound, and a program, a run
or a put is refused by name; the session goes on. All clients of an account have one share: they are one client to the
policies, by the number of its first.

Neighbours: `clients` opens and ends sessions; it, `runs` and `puts` ask here before they give; `Resources` asks before
it binds; `completion` says what gangs and transfers have used (`usage`). Nothing here changes but who is here and what
was used; what an account has is counted when it is asked for.
The functions that matter: `identified`, `why_not_open`, `why_no_run`, `check_memory`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .. import protocol as p
from ..memory import Buffers, Spill, size_text
from ..model import Account, Atoms, Impossible, SliceSpec, Value, ranges, shard_bytes
from ..slices import Resources
from ..transfer import ALL
from .plan_rows import PlanRows
from .records import AccountRecord, ClientRecord, InFlight, RunRecord
from .state import ControllerModule, State
from .usage import DAY, HOUR, DeviceTime, S, Usage, Used

MINUTE = 60 * S
ONE_RUN = Used(runs=1)


class AccountView(msgspec.Struct, frozen=True):
    """An account with what it has now, and has used in all and in the last hours."""

    limits: Account
    clients: int
    devices: int
    device_memory: int
    host_memory: int
    programs: int
    runs: int
    used: Used
    lately: Used


class Accounts(ControllerModule):
    _state: State
    _atoms: Atoms
    _buffers: Buffers
    _resources: Resources
    _spill: Spill
    _records: dict[str, AccountRecord] = {}
    _by_peer: dict[int, AccountRecord] = {}
    _proved: dict[int, int] = {}  # by connection: the number that its client has had
    _device_time: DeviceTime | None = None

    def __post_init__(self) -> None:
        self._device_time = DeviceTime(self._atoms)
        self._resources.check = self._check_devices
        if not self._state.config.accounts:
            self._record(Account())

    # --- who is who ----------------------------------------------------------------------------------------------

    def _record(self, account: Account) -> AccountRecord:
        found = self._records.get(account.name)
        if found is None:
            found = self._records[account.name] = AccountRecord(account, Usage())
        found.limits = account
        return found

    def identified(self, event: p.PeerIdentified) -> str:
        """Returns what is wrong: a session does not pass from one account to another."""
        peer, account = event.peer, event.account
        session = self._state.by_peer.get(peer)
        if session is not None and session.account.limits.name != account.name:
            return f"it was opened by account {session.account.limits.name!r}, and this is {account.name!r}"
        self._by_peer[peer], self._proved[peer] = self._record(account), event.client
        return ""

    def forget(self, peer: int) -> None:
        """Its connection is over. The driver will say anew whose the next one is."""
        self._by_peer.pop(peer, None)
        self._proved.pop(peer, None)

    def of(self, peer: int) -> AccountRecord | None:
        return self._by_peer.get(peer) if self._state.config.accounts else self._records[""]

    def why_not_open(self, peer: int, opening: p.Open) -> str:
        """Why this session may not be opened; "" if it may."""
        record = self.of(peer)
        if record is None:
            return "nobody has said whose it is: clients of this cluster need a token or a certificate of an account"
        account = record.limits
        if account.role == "viewer":
            return f"account {account.name!r} is a viewer's: it may look, and opens no session"
        for what, asked, most in (
            ("weight", opening.weight, account.weight), ("priority", opening.priority, account.priority)
        ):  # fmt: skip
            if most is not None and asked > most:
                return f"it asks for {what} {asked}, and the highest {what} of account {account.name!r} is {most}"
        return ""

    def returns_as(self, peer: int, number: int) -> int:
        """The number by which a client comes back, if it may: else others could take its arrays. Where one token is for
        all, that is not looked at."""
        return number if peer not in self._by_peer or self._proved[peer] == number else 0

    def enter(self, session: ClientRecord) -> None:
        """The account knows its client. Its share begins with its first, unless it is nobody's in particular."""
        record = session.account
        if record.limits.name:
            if not record.sessions:
                record.share = session.number
            session.share = record.share
        record.sessions[session.number] = session

    def leave(self, session: ClientRecord) -> bool:
        """True: nobody has its share any more."""
        del session.account.sessions[session.number]
        return not session.account.limits.name or not session.account.sessions

    def has_share(self, number: int) -> bool:
        """Whether a share goes by this number, perhaps of a client that is gone."""
        return any(record.share == number and record.sessions for record in self._records.values())

    # --- what is refused -----------------------------------------------------------------------------------------

    def _check_devices(self, session: int, spec: SliceSpec) -> None:
        """Raises Impossible."""
        record = self._state.sessions[session].account
        most = record.limits.devices
        if most is not None and (has := self._devices(record)) + spec.devices > most:
            raise Impossible(
                f"slice {spec.name!r} asks for {spec.devices} devices; account {record.limits.name!r} may have {most}, "
                f"and its slices have {has}: release one first"
            )

    def check_programs(self, session: ClientRecord) -> None:
        """Raises Impossible if it may not have the program that it has just registered."""
        account = session.account.limits
        if account.programs is not None and self._programs(session.account) > account.programs:
            raise Impossible(
                f"account {account.name!r} may have {account.programs} programs, and has them: unregister one first"
            )

    def why_no_run(self, session: ClientRecord, now: int) -> str:
        """Why this session may not run what it has just submitted; "" if it may: then that is counted."""
        record, account = session.account, session.account.limits
        if account.runs is not None and self._runs(record) > account.runs:
            return f"account {account.name!r} may have {account.runs} runs under way, and has them: await one first"
        if account.device_seconds is not None:
            again = record.usage.again_at(account.device_seconds * S, now)
            if again > now:
                return (
                    f"account {account.name!r} has used its {account.device_seconds} device-seconds of {DAY} hours; it "
                    f"may run programs again in {_span(again - now)}"
                )
        record.usage.add(ONE_RUN, now)
        return ""

    def check_results(self, run: RunRecord, rows: PlanRows) -> None:
        """Raises Impossible if its client may not hold what the run is to make."""
        account = run.session.account.limits
        if account.device_memory is None and account.host_memory is None:
            return
        named = zip(ranges.each(run.call.results), rows.results, strict=True)
        self.check_memory(
            run.session, sum(row.nbytes * row.layout.place.size for name, row in named if name and row.arg < 0)
        )

    def check_memory(self, session: ClientRecord, nbytes: int) -> None:
        """Raises Impossible if its clients may not hold so many bytes more."""
        record, account = session.account, session.account.limits
        if account.device_memory is not None:
            held = self._held(record)
            if held + nbytes > account.device_memory:
                raise Impossible(
                    f"account {account.name!r} may hold {size_text(account.device_memory)} of arrays, holds "
                    f"{size_text(held)}, and asks for {size_text(nbytes)} more: release some first"
                )
        if account.host_memory is not None:
            spilled = self._spilled(record)
            if spilled > account.host_memory:
                raise Impossible(
                    f"account {account.name!r} may have {size_text(account.host_memory)} of arrays in hosts' memory, "
                    f"and has {size_text(spilled)}: release some first"
                )

    # --- what an account has now ---------------------------------------------------------------------------------

    def _devices(self, record: AccountRecord) -> int:
        return self._resources.devices_of(record.sessions)

    def _held(self, record: AccountRecord) -> int:
        return sum(self._buffers.held_bytes.get(number, 0) for number in record.sessions)

    def _spilled(self, record: AccountRecord) -> int:
        return sum(self._spill.spilled_bytes.get(number, 0) for number in record.sessions)

    @staticmethod
    def _programs(record: AccountRecord) -> int:
        return sum(each.blame is None for session in record.sessions.values() for each in session.programs.values())

    @staticmethod
    def _runs(record: AccountRecord) -> int:
        return sum(len(session.runs) for session in record.sessions.values())

    # --- what it has used ----------------------------------------------------------------------------------------

    def gang_over(self, run: RunRecord, entry: InFlight, now: int) -> None:
        assert entry.ticket is not None
        assert self._device_time is not None
        taken = self._device_time.taken(entry.ticket.place, entry.ticket.devices, entry.entered, now)
        run.session.account.usage.add(Used(taken), now)

    def contents_over(self, entry: InFlight, now: int) -> None:
        """What a client has put is on the devices, or what it gets has left."""
        if entry.blame is not None or entry.session is None:
            return
        layout = self._buffers[entry.buffer].layout
        if entry.kind == "put":
            used = Used(bytes_in=Value(layout.shape, layout.dtype).nbytes)
        else:
            whole = entry.shard == ALL
            used = Used(bytes_out=Value(layout.shape, layout.dtype).nbytes if whole else shard_bytes(layout))
        entry.session.account.usage.add(used, now)

    def restore(self, rows: tuple[p.UsageRow, ...], now: int) -> None:
        """What was used before this start. What the clock says is still to come counts as of now."""
        for row in rows:
            used = Used(row.device_time, row.bytes_in, row.bytes_out, row.runs)
            record = self._records.setdefault(row.account, AccountRecord(Account(row.account, "user"), Usage()))
            record.usage.add(used, min(row.hour * HOUR, now))

    def rows(self) -> list[p.UsageRow]:
        """What was used, for a later start."""
        return [
            p.UsageRow(name, hour, used.device_time, used.bytes_in, used.bytes_out, used.runs)
            for name, record in self._records.items()
            for hour, used in record.usage.hours.items()
        ]

    def audit(self) -> Iterator[tuple[str, int, int]]:
        """(what, as it is kept, counted anew)."""
        held = dict[int, int]()
        for buffer in self._buffers:
            nbytes = buffer.nbytes * buffer.layout.place.size
            if nbytes and (buffer.handle or buffer.aliases):
                held[buffer.client] = held.get(buffer.client, 0) + nbytes
        for client in held.keys() | self._buffers.held_bytes.keys():
            yield f"bytes that client {client} holds", self._buffers.held_bytes.get(client, 0), held.get(client, 0)
        for record in self._records.values():
            mine = [each.number for each in self._state.sessions.values() if each.account is record]
            yield f"clients of account {record.limits.name!r}", len(record.sessions), len(mine)

    def shown(self, now: int, hours: int) -> tuple[AccountView, ...]:
        return tuple(
            AccountView(
                record.limits, len(record.sessions), self._devices(record), self._held(record),
                self._spilled(record), self._programs(record), self._runs(record), record.usage.total,
                record.usage.since(hours, now),
            )
            for record in self._records.values()
        )  # fmt: skip


def _span(nanoseconds: int) -> str:
    """As people say it, to the next minute."""
    hours, minutes = divmod(-(-nanoseconds // MINUTE), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
