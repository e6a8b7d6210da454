"""python/vllm_router/replay/report.py and charts.py: what is shown of rows, and what is recommended."""

import io
import json
import math
import re
import sys
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console

from vllm_router.replay.charts import as_html, save_plot
from vllm_router.replay.policies import PolicySpec
from vllm_router.replay.report import Value, as_json, points_of, recommend, table_of
from vllm_router.replay.trace import TraceError

OWN = [PolicySpec("random"), PolicySpec("least_load"), PolicySpec("consistent_hash", {"virtual_nodes": 100})]


def row(policy, p90, hit=0.3, seed=1, point=0, **more):
    return {
        "trace": "made",
        "policy": policy,
        "comparison": policy.startswith("compare_"),
        "point": point,
        "by_load": True,
        "seed": seed,
        "workers": 8,
        "routers": 1,
        "cache_tokens": 200_000,
        "load": 0.85,
        "rate": 3.2,
        "requests": 100,
        "finished": 100,
        "refused": 0,
        "cut_short": 0,
        "hit_share": hit,
        "ideal_hit_share": 0.5,
        "ttft_p50_s": p90 / 4,
        "ttft_p90_s": p90,
        "ttft_p99_s": p90 * 3,
        "e2e_p50_s": p90 + 1,
        "e2e_p90_s": p90 + 2,
        "load_imbalance": 0.2,
        "busy": 0.8,
        "saturated": False,
        "capacity": 3.76,
        "slo_s": 6.0,
    } | more


def shown(rows):
    console = Console(width=160, record=True, file=io.StringIO())
    for point in points_of(rows):
        console.print(table_of(point))
    return console.export_text()


def test_a_mean_has_the_confidence_of_its_seeds():
    value = Value.of([1.0, 2.0, 3.0])
    assert value.mean == 2
    assert value.half == pytest.approx(4.30 / math.sqrt(3))  # standard deviation 1
    assert math.isnan(Value.of([1.0]).half)
    assert Value.of([1.0, math.inf]).mean == math.inf
    assert math.isnan(Value.of([]).mean)
    assert Value.of([5.0] * 40).half == 0


def test_the_table_marks_the_best_of_each_column():
    text = shown([row("random", 8.0, hit=0.2), row("least_load", 4.0, hit=0.3)])
    assert "made: 100 requests, 3.2/s (load 0.85), 8 workers with 200k tokens of cache each" in text
    random, least = (
        next(line for line in text.splitlines() if name in line) for name in ("random", "least_load")
    )
    assert "30.0 %*" in least
    assert "4.00*" in least
    assert "*" not in random
    assert "Times in seconds. One unlimited cache would hit 50.0 %." in text
    assert "Capacity 3.76 requests a second, with p90 TTFT within 6.00 s." in text


def test_a_narrow_terminal_gets_the_columns_that_matter_most():
    (point,) = points_of([row("random", 8.0), row("consistent_hash:virtual_nodes=100", 4.0, saturated=True)])
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table_of(point, 80))
    text = console.export_text()
    assert "end p50" not in text
    assert "4.00*" in text
    assert "…" not in text


def test_what_all_have_alike_has_no_best():
    text = shown([row("random", 8.0), row("least_load", 4.0)])
    assert "0.20*" not in text


def test_seeds_give_a_confidence_and_saturation_is_said():
    rows = [row("random", p90, seed=seed, saturated=True) for seed, p90 in enumerate((7.0, 8.0, 9.0), 1)]
    text = shown(rows)
    assert "8.00  ±2.5" in text.replace("* ", "  ")
    assert "saturated" in text
    assert "3 seeds" in text


def test_requests_that_were_lost_are_told():
    text = shown([row("random", math.inf, refused=3, cut_short=1)])
    assert "never" in text
    assert "4 requests were rejected or aborted" in text


def test_json_has_every_row_and_nothing_that_json_does_not_know():
    told = json.loads(as_json([row("random", math.inf), row("least_load", 4.0)], {"command": "x"}))
    assert told["rows"][0]["ttft_p90_s"] is None
    (point,) = told["points"]
    assert point["policies"]["least_load"]["ttft_p90_s"] == {
        "mean": 4.0,
        "half_of_95_percent": None,
        "best": True,
    }
    assert told["about"] == {"command": "x"}


def test_the_page_has_all_and_needs_nothing_from_elsewhere():
    rows = [row("random", 8.0), row("least_load", 4.0, hit=0.4), row("compare_x", math.inf, saturated=True)]
    page = as_html(rows, recommend(rows, OWN[:2]), {"command": "vllm-router replay <x>"})
    assert not re.search(r"https?:|src=|href=|url\(|@import|<script|<link", page)
    assert "--policy least_load" in page
    assert "&lt;x&gt;" in page
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        bars = [float(bar.get("width")) for bar in ET.fromstring(svg).iter("rect")]
        assert len(bars) == 3
        assert all(0 <= width <= 520 for width in bars)
    # The best bar is green; a slower one is longer.
    waits = re.findall(r"<svg.*?</svg>", page, re.DOTALL)[0]
    first, second, third = re.findall(r'<rect [^>]*width="([0-9.]+)"[^>]*fill="(#\w+)"', waits)
    assert (float(first[0]) > float(second[0]), second[1]) == (True, "#2e8b57")
    assert (third[0], third[1]) == ("520.0", "#b0b0b0")


def test_the_picture_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    save_plot([row("random", 8.0), row("least_load", math.inf)], tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(TraceError, match="cannot be written"):
        save_plot([row("random", 8.0)], tmp_path / "no" / "out.png")
    with pytest.raises(TraceError, match="cannot be written"):
        save_plot([row("random", 8.0)], tmp_path / "out.nonsense")


def test_without_matplotlib_the_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(TraceError, match="pip install 'vllm-router"):
        save_plot([row("random", 8.0)], tmp_path / "out.png")


def test_the_lowest_p90_is_recommended_with_its_flags_and_why():
    rows = [row("random", 8.0), row("least_load", 5.0), row(OWN[2].label, 4.0, hit=0.4)]
    advice = recommend(rows, OWN)
    assert advice.flags == "--policy consistent_hash --virtual-nodes 100"
    assert advice.why[0] == "p90 time to first token 4.00 s, hit share 40.0 % of an ideal 50.0 %."
    assert advice.why[1].startswith("The next, least_load: 5.00 s")


def test_too_few_requests_recommend_nothing():
    """Row 46 of the third list: a policy was recommended from 72 requests, of which seven were above p90."""
    rows = [row("random", 8.0, requests=72), row("least_load", 5.0, requests=72)]
    advice = recommend(rows, OWN[:2])
    assert (advice.policy, advice.flags) == (None, "")
    assert advice.why[0].startswith("72 requests are too short to tell: ")
    assert "needs 100 requests" in advice.why[0]
    assert recommend([row("random", 8.0), row("least_load", 5.0)], OWN[:2]).flags == "--policy least_load"


def test_a_comparison_policy_is_never_recommended():
    rows = [row("random", 8.0), row("compare_x", 1.0)]
    assert recommend(rows, [OWN[0], PolicySpec("compare_x")]).flags == "--policy random"
    advice = recommend(rows[1:], [PolicySpec("compare_x")])
    assert advice.policy is None
    assert advice.flags == ""
    assert "which the server does not have" in advice.why[0]


def test_of_equals_the_one_with_more_hits_is_recommended():
    rows = [row("random", 4.0, hit=0.2), row("least_load", 4.05, hit=0.4)]
    advice = recommend(rows, OWN[:2])
    assert advice.policy.name == "least_load"
    assert any("the higher hit share decided" in sentence for sentence in advice.why)


def test_the_next_of_equals_is_the_one_with_more_hits():
    rows = [
        row("random", 4.0, hit=0.2),
        row("least_load", 4.0, hit=0.3),
        row("consistent_hash", 4.0, hit=0.4),
    ]
    specs = [PolicySpec("random"), PolicySpec("least_load"), PolicySpec("consistent_hash")]
    assert recommend(rows, specs).why[1].startswith("The next, least_load:")


def test_over_several_points_ratios_count_not_seconds():
    rows = [
        row("random", 100.0),
        row("least_load", 120.0),
        row("random", 1.0, point=1),
        row("least_load", 0.5, point=1),
    ]
    assert recommend(rows, OWN[:2]).policy.name == "least_load"


def test_a_policy_that_loses_requests_is_not_recommended_over_one_that_does_not():
    rows = [row("random", math.inf, hit=0.9), row("least_load", 50.0, saturated=True)]
    advice = recommend(rows, OWN[:2])
    assert advice.policy.name == "least_load"
    assert "add workers" in advice.why[-1]
