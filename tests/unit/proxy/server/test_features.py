"""cpp/proxy/server/features.h: the table, and the rooms of a feature."""

import re
from pathlib import Path

from tests.repo.test_arrows import FEATURES

CPP = Path(__file__).parents[4] / "cpp"


def test_each_room_of_a_feature_has_a_row():
    table = (CPP / "proxy/server/features.cc").read_text()
    rows = re.search(r"kFeatures = \{(.*?)\}", table, re.DOTALL)[1]
    included = re.findall(r'"(proxy/\w+)/\w+_feature\.h"', table)
    assert sorted(included) == sorted(FEATURES)
    assert rows.count("&k") == len(included)


# What it shows is of other rooms: conditions, receipts, and counts of the server's threads.
SERVERS_ALONE = {"proxy/dashboard"}


def test_a_feature_has_a_room_that_needs_no_server():
    for room in set(FEATURES) - SERVERS_ALONE:
        assert list((CPP / room.removeprefix("proxy/")).glob("*.h")), room
