"""benchmarks/python_select.py runs once, small, so that it does not rot."""

import json

from benchmarks import python_select


def test_every_row_is_measured(capsys):
    python_select.main(["--calls", "5", "--repeat", "1", "--batch", "50", "--json"])
    figures = json.loads(capsys.readouterr().out)
    assert len(figures["select_finish"]) == len(python_select.SELECTS)
    assert len(figures["select_batch"]) == len(python_select.BATCHES)
    assert all(row["choices_per_s"] > 0 for row in figures["select_batch"])
    python_select.main(["--calls", "5", "--repeat", "1", "--batch", "50"])
    assert "consistent_hash hash_function=xxh3" in capsys.readouterr().out
