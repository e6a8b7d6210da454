"""benchmarks/replay_classes.py measures what it says, with a little traffic."""

import numpy as np

from benchmarks import replay_classes
from benchmarks.replay_classes import CLASSES, DIRECT, FAIR, FIFO, Bar, unequal
from vllm_router.replay import Fleet

FLEET = Fleet(workers=2, cache_tokens=160_000)


def test_the_table_has_a_row_for_each_arm_and_bars_say_what_they_compare(capsys):
    words = ["--workers", "2", "--seeds", "1", "--sessions", "300", "--requests", "400", "--users", "4"]
    assert replay_classes.main([*words, "--documents", "3"]) in (0, 1)
    out = capsys.readouterr().out
    for arm in (DIRECT, FIFO, CLASSES, FAIR):
        assert f"| {arm.name} |" in out
    assert [
        out.count(f"{word} {number} ") > 0 for number in range(1, 7) for word in ("kept  ", "MISSED")
    ].count(True) >= 6


def test_people_wait_less_with_classes_than_behind_a_flood():
    cell = replay_classes.class_cell(FLEET, 1, 300, (FIFO, CLASSES))
    people = {arm.name: cell.interactive["flood", arm.name]["ttft_p99_s"] for arm in (FIFO, CLASSES)}
    assert people[CLASSES.name] < people[FIFO.name]
    assert cell.batch["flood", CLASSES.name]["finished"] > 0


def test_equal_costs_are_equal_shares():
    trace = replay_classes.tenants_workload(np.random.default_rng(1), 900, 4, 3)
    result = replay_classes.play(trace, FAIR, FLEET, 1)
    assert unequal(trace, result, {}) >= 0
    # A weight that nobody had in the run makes the shares over weights differ.
    assert unequal(trace, result, {"tenant-1": 100.0}) > unequal(trace, result, {})


def test_a_bar_is_kept_at_its_limit_and_never_by_a_missing_figure():
    assert Bar("a", 4, 4, at_most=True).is_kept
    assert not Bar("a", 4.1, 4, at_most=True).is_kept
    assert not Bar("a", float("nan"), 0).is_kept
    assert str(Bar("a", 1, 2)).startswith("MISSED a: 1")
