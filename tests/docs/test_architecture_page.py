"""docs/explanation/architecture.md against the rooms and their arrows."""

import re
from pathlib import Path

from tests.repo.test_arrows import CPP, ROOMS, ROWS

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md").read_text()
TABLE = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.split("| room | is about |")[1].splitlines()[2:]
    if line.startswith("| `")
]


def test_the_table_has_every_room_and_what_it_may_include() -> None:
    may_include = {row[0].strip(" `"): row[2] for row in TABLE if row[0].strip(" `") in ROWS}
    assert sorted(may_include) == ROOMS
    for room, told in may_include.items():
        if told not in ("everything", "nothing of ours"):
            assert set(told.split(", ")) == ROWS[room] & set(ROOMS), room


def test_the_files_to_begin_with_exist() -> None:
    for row in TABLE:
        if row[0].strip(" `") in ROOMS:
            assert (CPP / row[0].strip(" `") / row[3].strip("` ")).is_file(), row


def test_the_drawing_has_every_room() -> None:
    drawn = re.findall(r"│ ((?:proxy/)?[a-z_]+) ", PAGE)
    assert {room for room in drawn if room in ROOMS} == set(ROOMS)
