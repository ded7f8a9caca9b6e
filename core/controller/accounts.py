"""Accounts: whose each client is, what the clients of one account may have together, and what they have used.

The driver says whose a connection is (`PeerIdentified`) before it opens a session. Where one token is for all, every
client is of the account "", which has no limits. All clients of another account are one client to the policies, by the
number of its first, and so have one share.

What is over a limit is refused where it is asked for, by name: the session is not opened, or it goes on. What an
account has is counted when somebody asks. Neighbours: `clients`, `runs`, `puts` and `Resources`, which ask before they
give; `completion`, which says what was used (`usage`).
The functions that matter: `identified`, `why_not_open`, `_check`, `check_run`.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec

from .. import protocol as p
from ..memory import Buffers, Spill, size_text
from ..model import Account, Impossible, SliceSpec, Value, ranges, shard_bytes
from ..protocol import Used
from ..slices import Resources
from ..transfer import ALL
from .meters import Meters
from .plan_rows import PlanRows
from .records import AccountRecord, ClientRecord, InFlight, RunRecord
from .state import ControllerModule, State
from .usage import DAY, HOUR, S, Usage

MINUTE = 60 * S
ONE_RUN = Used(runs=1)
QUOTAS = {  # what it is called, and what gives some of it back
    "devices": ("devices", "release a slice"), "device_memory": ("of arrays", "release some"),
    "host_memory": ("of arrays in hosts' memory or on their disks", "release some"),
    "programs": ("programs", "unregister one"), "runs": ("runs under way", "await one"),
}  # fmt: skip


class AccountView(msgspec.Struct, frozen=True):
    limits: Account
    clients: int
    has: dict[str, int]  # by quota: what it has now
    used: Used
    lately: Used


class Accounts(ControllerModule):
    _state: State
    _buffers: Buffers
    _meters: Meters
    _resources: Resources
    _spill: Spill
    _records: dict[str, AccountRecord] = {}
    _by_peer: dict[int, tuple[AccountRecord, int]] = {}  # with the number that the client has proved

    def __post_init__(self) -> None:
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
        self._by_peer[peer] = self._record(account), event.client
        return ""

    def forget(self, peer: int) -> None:
        """Its connection is over. The driver will say anew whose the next one is."""
        self._by_peer.pop(peer, None)

    def of(self, peer: int) -> AccountRecord | None:
        return self._by_peer.get(peer, (None, 0))[0] if self._state.config.accounts else self._records[""]

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
        """The number by which a client comes back, if it may: else others could take its arrays."""
        return number if self._by_peer.get(peer, (None, number))[1] == number else 0

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

    def _has(self, record: AccountRecord, quota: str) -> int:
        """How much of this it has now."""
        match quota:
            case "devices":
                return self._resources.devices_of(record.sessions)
            case "device_memory":
                return sum(self._buffers.held_bytes.get(number, 0) for number in record.sessions)
            case "host_memory":
                return sum(self._spill.spilled_bytes.get(number, 0) for number in record.sessions)
            case "programs":
                return sum(each.blame is None for mine in record.sessions.values() for each in mine.programs.values())
            case _:
                return sum(len(session.runs) for session in record.sessions.values())

    def _check(self, record: AccountRecord, quota: str, more: int, counted: bool = False) -> None:
        """Raises Impossible if it may not have so much more, which is among what it has already if it is `counted`."""
        most = getattr(record.limits, quota)
        if most is None:
            return
        has = self._has(record, quota) - more * counted
        if has + more > most:
            what, remedy = QUOTAS[quota]
            text = size_text if "memory" in quota else str
            asks = f" and asks for {text(more)} more" if more else ""
            raise Impossible(
                f"account {record.limits.name!r} may have {text(most)} {what}, has {text(has)}{asks}: {remedy} first"
            )

    def _check_devices(self, session: int, spec: SliceSpec) -> None:
        self._check(self._state.sessions[session].account, "devices", spec.devices)

    def check_program(self, session: ClientRecord) -> None:
        """Raises Impossible if it may not have the program that it has just registered."""
        self._check(session.account, "programs", 1, counted=True)

    def check_run(self, session: ClientRecord, now: int) -> None:
        """Raises Impossible if it may not run what it has just submitted; if it may, that is counted."""
        record, most = session.account, session.account.limits.device_seconds
        self._check(record, "runs", 1, counted=True)
        if most is not None and (again := record.usage.again_at(most * S, now)) > now:
            hours, minutes = divmod(-(-(again - now) // MINUTE), 60)
            raise Impossible(
                f"account {record.limits.name!r} has used its {most} device-seconds of {DAY} hours; it may run "
                f"programs again in {hours} h {minutes} min"
            )
        record.usage.add(ONE_RUN, now)

    def check_results(self, run: RunRecord, rows: PlanRows) -> None:
        """Raises Impossible if its client may not hold what the run is to make."""
        account = run.session.account.limits
        if account.device_memory is not None or account.host_memory is not None:
            named = zip(ranges.each(run.call.results), rows.results, strict=True)
            made = [row for name, row in named if name and row.arg < 0]
            self.check_memory(run.session, sum(row.nbytes * row.layout.place.size for row in made))

    def check_memory(self, session: ClientRecord, nbytes: int) -> None:
        """Raises Impossible if it may not hold so many bytes more, or has too many in hosts' memory."""
        self._check(session.account, "device_memory", nbytes)
        self._check(session.account, "host_memory", 0)

    # --- what it has used ----------------------------------------------------------------------------------------

    def gang_over(self, run: RunRecord, entry: InFlight, now: int) -> None:
        run.session.account.usage.add(Used(self._meters.gang_over(run, entry, now)), now)

    def contents_over(self, entry: InFlight, now: int) -> None:
        """What a client has put is on the devices, or what it gets has left."""
        if entry.blame is not None or entry.session is None:
            return
        layout, put = self._buffers[entry.buffer].layout, entry.kind == "put"
        nbytes = shard_bytes(layout) if entry.shard != ALL else Value(layout.shape, layout.dtype).nbytes
        entry.session.account.usage.add(Used(bytes_in=nbytes) if put else Used(bytes_out=nbytes), now)

    def restore(self, event: p.UsageKnown, now: int) -> None:
        """What the clock says is still to come counts as of now."""
        for name, hour, used in event.rows:
            record = self._records.setdefault(name, AccountRecord(Account(name, "user"), Usage()))
            record.usage.add(used, min(hour * HOUR, now))

    def rows(self) -> list[tuple[str, int, Used]]:
        """As in `UsageKnown`, for a later start."""
        return [(name, *each) for name, record in self._records.items() for each in record.usage.hours.items()]

    # --- to look at ----------------------------------------------------------------------------------------------

    def audit(self) -> Iterator[tuple[str, int, int]]:
        """(what, as it is kept, counted anew)."""
        kept, held = self._buffers.held_bytes, Counter[int]()
        for buffer in self._buffers:
            if buffer.handle or buffer.aliases:
                held[buffer.client] += buffer.nbytes * buffer.layout.place.size
        for client in held.keys() | kept.keys():
            yield f"bytes that client {client} holds", kept.get(client, 0), held[client]

    def shown(self, now: int, hours: int = DAY) -> tuple[AccountView, ...]:
        """All accounts that were here, with what they have used in all and in the last so many hours."""
        return tuple([
            AccountView(
                record.limits, len(record.sessions), {quota: self._has(record, quota) for quota in QUOTAS},
                record.usage.total, record.usage.since(hours, now),
            )
            for record in self._records.values()
        ])  # fmt: skip
