"""benchmarks/quarantine_simulation.py in small: crashes hurt no innocent client, poison costs few."""

import json

from benchmarks import quarantine_simulation


def run(capsys, *arguments):
    status = quarantine_simulation.main(["--seeds", "2", *arguments])
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_crashes_are_not_held_against_clients_that_do_no_harm(capsys):
    """Row 2: two crashes a second apart left one client 78 of 12,128 requests."""
    cell = ["--workers", "6", "--clients", "1", "10", "--per-worker", "13", "--crashes", "2", "4"]
    status, rows = run(capsys, "--parts", "innocent", *cell, "--apart", "1")
    assert status == 0
    assert len(rows) == 9
    assert all(row["kept"] >= 0.99 and row["restricted"] == 0 for row in rows)


def test_poison_costs_no_more_workers_than_a_restriction_after_two_bodies(capsys):
    """Row 2: those of the rule before: 12 for one body, 14 for bodies that vary."""
    _, rows = run(capsys, "--parts", "poison", "--workers", "6")
    lost = {(row["poison"], row["others"]): row["lost_600s"] for row in rows[:-1]}
    assert lost["one body", False] <= 12
    assert lost["one body", True] <= 12
    assert all(count < 14 for count in lost.values())
