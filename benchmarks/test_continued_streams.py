"""benchmarks/continued_streams.py: does it still work, and is every response whole or cut?"""

import json

import pytest

from benchmarks import continued_streams

SMALL = ["--streams", "40", "--sampled", "12", "--workers", "3", "--tokens", "30", "--step-ms", "60"]


def test_a_small_run(tmp_path):
    file = tmp_path / "figures.json"
    assert continued_streams.main([*SMALL, "--events-before", "5", "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    kinds = figures["kinds"]
    lost = sum(kinds[kind]["of killed"] for kind in continued_streams.REPEATING)
    assert lost > 0
    assert figures["streams_continued_total"] == {"lost": lost}
    cut = sum(kinds[kind].get("cut", 0) for kind in continued_streams.SAMPLED)
    assert cut == sum(kinds[kind]["of killed"] for kind in continued_streams.SAMPLED) > 0


def test_without_it_what_the_worker_had_is_cut(tmp_path):
    file = tmp_path / "figures.json"
    flags = ["--events-before", "5", "--continue-streams", "off", "--json", str(file)]
    assert continued_streams.main([*SMALL, *flags]) == 0
    kinds = json.loads(file.read_text())["kinds"].values()
    cut = sum(row.get("cut", 0) for row in kinds)
    assert cut == sum(row["of killed"] for row in kinds) > 0


def test_more_kills_than_workers_leave_is_a_mistake(capsys):
    with pytest.raises(SystemExit):
        continued_streams.main(["--workers", "2", "--kills", "2"])
    assert "--kills must be above 0 and below --workers" in capsys.readouterr().err
