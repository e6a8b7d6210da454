"""benchmarks/peer_sync.py runs its parts of one process and two, small, so that they do not rot."""

import json

from benchmarks import peer_sync


def test_decisions_are_measured_and_heard(capsys):
    peer_sync.main(["--parts", "request", "thread", "--decisions", "70", "--rate", "100", "--seconds", "0.5"])
    *requests, thread = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert [row["tokens"] for row in requests] == [256, 1_500, 12_000]
    assert all(row["without_us"] > 0 and row["with_us"] > 0 for row in requests)
    assert thread["part"] == "thread"
    assert thread["applied"] == thread["decided"] > 0
