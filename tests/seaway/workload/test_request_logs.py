"""Requests from public logs, in rows as they were published."""

from __future__ import annotations

from pathlib import Path

import pytest

import seaway as sw
from seaway.workload import Arrival

S, MS = 1_000_000_000, 1_000_000
MOONCAKE = """\
{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353, 2354]}
{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46, 47, 2366]}
"""
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens\r
2023-11-16 18:15:46.6805900,374,44\r
2023-11-16 18:15:50.9951690,396,109"""
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,API log
"""


def read(folder: Path, text: str) -> sw.workload.Arrivals:
    file = folder / "log"
    file.write_bytes(text.encode())
    return sw.workload.requests(file)


def test_a_request_of_mooncakes_came_at_its_millisecond(tmp_path: Path) -> None:
    assert list(read(tmp_path, MOONCAKE)) == [
        Arrival(0, input=6955, output=52),
        Arrival(3053 * MS, input=6472, output=26),
    ]


def test_a_request_of_azures_came_at_its_date_with_or_without_a_zone(tmp_path: Path) -> None:
    wanted = [Arrival(0, input=374, output=44), Arrival(4_314_579_000, input=396, output=109)]
    assert list(read(tmp_path, AZURE)) == wanted
    zoned = AZURE.replace("00,374", "00+00:00,374").replace("90,396", "90+00:00,396")
    assert list(read(tmp_path, zoned)) == wanted
    images = AZURE.replace("TIMESTAMP", "TIMESTAMP,NumImages").replace(",374", ",2,374").replace(",396", ",0,396")
    assert list(read(tmp_path, images)) == wanted


def test_a_request_of_burstgpts_has_its_model_as_client_and_one_without_an_answer_is_left_out(tmp_path: Path) -> None:
    wanted = [Arrival(0, "ChatGPT", "Conversation log", 472, 18), Arrival(113 * S, "GPT-4", "API log", 417, 276)]
    assert list(read(tmp_path, BURSTGPT)) == wanted
    longer = BURSTGPT.replace("Timestamp,", "Timestamp,Session ID,Elapsed time,").replace("\n5,", "\n5,a,1.5,")
    longer = longer.replace("\n45,", "\n45,,0,").replace("\n118,", "\n118,,9,")
    assert list(read(tmp_path, longer)) == wanted


@pytest.mark.parametrize(
    ("text", "old", "new", "says"),
    [
        (MOONCAKE, "30535", "-1", "row 2: timestamp is '-1'; a number, not negative"),
        (MOONCAKE, "6472", '"6472"', "row 2: input_length is '\"6472\"'; a whole number"),
        (MOONCAKE, "26,", "26.5,", "row 2: output_length is '26.5'; a whole number"),
        (MOONCAKE, "output_length", "output", "row 1 has the columns 'timestamp, input_length, output, hash_ids'"),
        (MOONCAKE, "2366]}", "2366]", "row 2 is no JSON object: "),
        (MOONCAKE, '{"timestamp": 30535', '[{"timestamp": 30535', "row 2 is no JSON object: "),
        (
            AZURE,
            "2023-11-16 18:15:50",
            "then 18:15:50",
            "row 2: TIMESTAMP is 'then 18:15:50.9951690', no date like '2023",
        ),
        (AZURE, "109", "many", "row 2: GeneratedTokens is 'many'; a whole number"),
        (AZURE, ",109", "", "row 2: it has 2 columns instead of 3"),
        (AZURE, "ContextTokens", "Tokens", "a log of requests has timestamp, input_length, output_length; TIMESTAMP,"),
        (BURSTGPT, "\n5,", "\nNaN,", "row 1: Timestamp is 'NaN'; a number"),
    ],
)
def test_what_is_wrong_is_named_by_file_row_and_column(
    tmp_path: Path, text: str, old: str, new: str, says: str
) -> None:
    with pytest.raises(ValueError, match=r"log, row \d") as caught:
        read(tmp_path, text.replace(old, new))
    assert says in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none cannot be read: No such file"):
        sw.workload.requests(tmp_path / "none")
    (tmp_path / "log").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"log cannot be read: .*utf-8"):
        sw.workload.requests(tmp_path / "log")
    with pytest.raises(ValueError, match="log has no request"):
        read(tmp_path, AZURE.splitlines()[0])
