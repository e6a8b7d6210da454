"""benchmarks/kubernetes_cost.py runs once, small, so that it does not rot."""

import itertools
import json
import re

import pytest

from benchmarks import kubernetes_cost

pytest.importorskip("kubernetes")


def test_cost_and_latency_are_measured(capsys):
    small = ["--pods", "5", "--pod-kb", "1", "--rate", "20", "--seconds", "0.5"]
    kubernetes_cost.main([*small, "--events", "40", "--latency-rates", "100"])
    out = capsys.readouterr().out
    assert float(re.search(r"([\d.]+) lists declared a second", out)[1]) > 0
    assert float(re.search(r"memory: ([\d.]+) MiB", out)[1]) > 1
    assert 0 < int(re.search(r"100 events/s, 40 events: published after (\d+) ms p50", out)[1]) < 2000


def test_every_step_of_a_pod_is_another_one_than_before():
    steps = [step for _, step in itertools.islice(kubernetes_cost.events(1), 40)]
    assert all(a != b for a, b in itertools.pairwise(steps))


def test_the_padding_has_about_the_size_that_is_asked_for():
    assert 7000 < len(json.dumps(kubernetes_cost.padding(8000))) < 10000
