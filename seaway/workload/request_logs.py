"""Requests from public logs of language models: when each came, and its tokens of input and output.

    Mooncake   `conversation_trace.jsonl`, ... (Qin et al., FAST 2025; github.com/kvcache-ai/Mooncake)
    Azure      `AzureLLMInferenceTrace_conv.csv`, ... (Patel et al., ISCA 2024; github.com/Azure/AzurePublicDataset)
    BurstGPT   `BurstGPT_1.csv`, ... (Wang et al., KDD 2025; github.com/HPMLL/BurstGPT)

Neighbours: `arrival_files` reads what `Arrivals.save` writes; `job_logs` has the logs of jobs.
"""

import csv
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path

import msgspec

from ..file_reading import MOST, plain_bytes
from .arrival_files import number_of
from .open_loop import Arrival, Arrivals

Row = Mapping[str, str]
# Columns: time, input, output, client, name. And nanoseconds of the unit of times; 0: they are dates.
FORMATS = (
    ("timestamp", "input_length", "output_length", "", "", 10**6),  # Mooncake
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens", "", "", 0),  # Azure
    ("Timestamp", "Request tokens", "Response tokens", "Model", "Log Type", 10**9),  # BurstGPT
)


def requests(path: str | Path) -> Arrivals:
    """Read a log of requests as Mooncake (JSON lines), Azure or BurstGPT (CSV) publish it. Its columns say which it is.

    Times count from the first request. Those without output, which failed, are left out. In BurstGPT's, the model is
    the client, and the type of the log the name.

        >>> with open("trace.jsonl", "w") as file:
        ...     _ = file.write('{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}')
        >>> sw.workload.requests("trace.jsonl")[0]
        Arrival(at=0, client='load', name='request', input=6955, output=52)
    """
    file = Path(path)
    try:
        text = plain_bytes(file, MOST).decode("utf-8-sig").strip()
    except ValueError as error:
        raise ValueError(f"{file} cannot be read: {error}") from None
    rows = _lines(text, file) if text.startswith("{") else _table(text, file)
    found = [_arrival(row, where) for where, row in rows]
    if not found:
        raise ValueError(f"{file} has no request")
    begin = min(each.at for each in found)
    return Arrivals(msgspec.structs.replace(each, at=each.at - begin) for each in found if each.output)


def _lines(text: str, file: Path) -> Iterator[tuple[str, Row]]:
    """Values as texts, like those of a table. Lists that are not needed are not made."""
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{file}, row {number}"
        try:
            row = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise ValueError(f"{where} is no JSON object: {error}") from None
        yield where, {name: bytes(value).decode() for name, value in row.items()}


def _table(text: str, file: Path) -> Iterator[tuple[str, Row]]:
    try:
        header, *rows = list(csv.reader(StringIO(text))) or [[]]
    except csv.Error as error:
        raise ValueError(f"{file} is no table: {error}") from None
    for number, row in enumerate(rows, 1):
        where = f"{file}, row {number}"
        if len(row) != len(header):
            raise ValueError(f"{where}: it has {len(row)} columns instead of {len(header)}")
        yield where, dict(zip(header, row, strict=True))


def _arrival(row: Row, where: str) -> Arrival:
    for at, given, made, client, name, unit in FORMATS:
        if {at, given, made} <= row.keys():
            return Arrival(
                round(number_of(row[at], at, where) * unit) if unit else _date(row[at], at, where),
                row.get(client) or "load",
                row.get(name) or "request",
                *(int(number_of(row[column], column, where, whole=True)) for column in (given, made)),
            )
    known = "; ".join(", ".join(columns[:3]) for columns in FORMATS)
    raise ValueError(f"{where} has the columns {', '.join(row)!r:.200}; a log of requests has {known}")


def _date(text: str, column: str, where: str) -> int:
    try:
        when = datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        raise ValueError(f"{where}: {column} is {text!r:.60}, no date like '2023-11-16 18:15:46.680590'") from None
    return (when - datetime(1970, 1, 1)) // timedelta(microseconds=1) * 1_000
