"""benchmarks/first_paint.py: does it still work?"""

import pytest

from benchmarks import first_paint
from tests.dashboard.browser import missing


def test_one_opening(capsys):
    if (reason := missing()) is not None:
        pytest.skip(reason)
    assert first_paint.main(["--workers", "3", "--rounds", "1"]) == 0
    rows = [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["first paint", "contentful", "numbers"]
    assert all(float(row[1]) > 0 for row in rows)
