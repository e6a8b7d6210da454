"""benchmarks/flags_cost.py: does it still work?"""

import pytest

from benchmarks import flags_cost


@pytest.mark.parametrize("events", [0, 3])
def test_a_small_run(capsys, events):
    arguments = ["--slices", "2", "--requests", "16", "--events", str(events)]
    assert (
        flags_cost.main([*arguments, "--set", "all=--enable-trace --otlp-traces-endpoint {collector}"]) == 0
    )
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split("  ")[0] for row in rows] == ["none", "none again", "all"]


def test_the_interval_holds_the_median():
    assert flags_cost.interval([float(value) for value in range(100)]) == (40, 60)
    assert flags_cost.interval([1.0]) == (1, 1)
