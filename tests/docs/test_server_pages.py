"""The pages about the server (metrics, errors, access log, HTTP API, monitoring) against the code."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from scripts import http_api_reference, metrics_reference
from tests.fakes.every_metric import scrape_everything
from tests.fakes.prometheus_text import Family
from tests.models.promql import evaluate
from tests.repo.rules import none_of
from vllm_router import _core_testing as testing

DOCS = Path(__file__).parents[2] / "docs"
DEPLOY = DOCS.parent / "deploy"
METRICS, ERRORS, ACCESS_LOG, HTTP_API = (
    (DOCS / "reference" / f"{name}.md").read_text()
    for name in ("metrics", "errors", "access_log", "http_api")
)
MONITOR = (DOCS / "how-to" / "monitor.md").read_text()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Family]]:
    """A scrape of a server that has something in every family."""
    with ExitStack() as stack:
        yield scrape_everything(stack, tmp_path_factory.mktemp("every_metric"))


def test_the_page_of_metrics_is_what_scrapes_show(page: dict[str, Family]) -> None:
    assert metrics_reference.render(METRICS, page) == METRICS, "run: python scripts/metrics_reference.py"


def test_each_metric_has_a_help_text_of_its_own(page: dict[str, Family]) -> None:
    families: dict[str, list[str]] = {}
    for name, family in page.items():
        families.setdefault(family.help, []).append(name)
    assert {text: names for text, names in families.items() if len(names) > 1} == {}


def test_names_of_other_routers_have_one_that_is_here(page: dict[str, Family]) -> None:
    """mending row 30: metrics that the dashboards of smg and continuum ask for."""
    rows = re.findall(r"^- `(\w+)`: `(\w+)`", METRICS.split("## Names elsewhere\n")[1], re.MULTILINE)
    there = [other for other, _ in rows]
    assert len(set(there)) == len(there) > 30
    for other, here in rows:
        assert f"vllm_router_{here}" in page, other
    named = set(there)
    assert {f"smg_router_cache_{name}" for name in ("hits_total", "misses_total", "tree_size")} <= named
    assert {"smg_worker_requests_active", "continuum_prefix_routing_requests_total"} <= named


def test_every_word_of_a_label_is_described(page: dict[str, Family]) -> None:
    ends = METRICS.split("| `end` |")[1].splitlines()[0]
    assert re.findall(r"`(\w+)`[,;]", ends) == testing.exchange_ends()
    for name in (
        "upstream_connections",
        "upstream_connects_total",
        "client_connections_rejected_total",
        "bytes_total",
    ):
        family = page[f"vllm_router_{name}"]
        for label in family.label_names().pop():
            assert family.values_of(label) <= words(family.help)


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def test_the_names_of_the_reference_router_are_kept() -> None:
    rows = re.findall(r"^- `(\w+)` \* \(\w+(.*?)\): ", METRICS, re.MULTILINE)
    kept = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    assert kept == {
        "requests_total": {"route"},
        "request_errors_total": {"route", "error_type"},
        "embeddings_total": set(),
        "embeddings_errors_total": {"error_type"},
        "request_duration_seconds": {"route"},
        "generate_duration_seconds": set(),
        "retries_total": {"route"},
        "retries_exhausted_total": {"route"},
        "retry_backoff_duration_seconds": {"attempt"},
        "cb_outcomes_total": {"worker", "outcome"},
        "cb_state_transitions_total": {"worker", "from", "to"},
        "cb_state": {"worker"},
        "embeddings_duration_seconds": set(),
        "policy_decisions_total": {"policy", "worker"},
        "prefix_routing_decisions_total": {"policy", "stage", "outcome"},
        "processed_requests_total": {"worker"},
        "active_workers": set(),
        "worker_health": {"worker"},
        "worker_load": {"worker"},
        "running_requests": {"worker"},
        "cache_hits_total": set(),
        "cache_misses_total": set(),
        "load_balancing_events_total": set(),
        "kv_routing_inputs_total": {"transport", "result"},
        "tree_size": {"worker"},
        "max_load": set(),
        "min_load": set(),
        "pd_requests_total": {"route"},
        "pd_request_duration_seconds": {"route"},
        "pd_errors_total": {"error_type"},
        "pd_prefill_requests_total": {"worker"},
        "pd_decode_requests_total": {"worker"},
        "pd_prefill_errors_total": {"worker"},
        "pd_decode_errors_total": {"worker"},
        "pd_stream_errors_total": {"worker"},
    }


def test_the_how_to_asks_for_metrics_that_exist(page: dict[str, Family]) -> None:
    asked = set(re.findall(r"vllm_router_\w+", MONITOR))
    assert asked
    assert {re.sub(r"_bucket$", "", name) for name in asked} <= set(page)
    named = set(re.findall(r"`([a-z_]+_(?:total|seconds|requests|health))`", MONITOR))
    assert {f"vllm_router_{name}" for name in named} <= set(page)


def promql_of_the_pages() -> Iterator[tuple[str, str]]:
    """Every expression of README and docs, with its page: of blocks, tables, settings of other programs."""
    for page in [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]:
        if page.parent.name == "decisions":
            continue
        text = page.read_text()
        found = []
        for block in re.findall(r"^```promql\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            found += re.sub(r"([/*+-])\n", r"\1 ", block).splitlines()
        found += re.findall(
            r"^ {4}((?:rate|sum|max|min|avg|histogram_quantile)\b.*vllm_router_.*)$", text, re.MULTILINE
        )
        found += re.findall(
            r"^ *(?:query|metricsQuery|expr): *(.*(?:vllm_router|continuum)_.*)$", text, re.MULTILINE
        )
        for span in re.findall(
            r"`([^`\n]*)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        ):
            if re.search(
                r"\b(?:vllm_router|continuum|router_shared_cache)_\w+(?: *[/*<>=!]|\{\w+=|.*[\[)])", span
            ):
                found.append(span.replace(r"\|", "|"))
        yield from ((str(page.relative_to(DOCS.parent)), one.strip("'")) for one in found)


def promql_of_the_rules() -> Iterator[tuple[str, str, str]]:
    """Each rule: its file, its expression, and the name of what it records."""
    for name in ("recording.yml", "alerts.yml"):
        for group in yaml.safe_load((DEPLOY / "prometheus" / name).read_text())["groups"]:
            for rule in group["rules"]:
                yield name, rule["expr"], rule.get("record", "")


def promql_of_the_board() -> Iterator[str]:
    board = json.loads((DEPLOY / "grafana" / "vllm-router.json").read_text())
    text = json.dumps(board)
    for expression in re.findall(r'"(?:expr|query)": ("(?:[^"\\]|\\.)*")', text):
        if expression == '"prometheus"':  # the kind of data source
            continue
        yield re.sub(r"label_values\((.*), (\w+)\)", r"sum by (\2) (\1)", json.loads(expression))


def test_every_promql_expression_has_series_with_its_labels(page: dict[str, Family]) -> None:
    """Row 41 of the third list: no graph, alert or query of a page is empty whatever happens."""
    scraped = {"job": "vllm-router", "instance": "router:29000"}
    series: dict[str, list[dict[str, str]]] = {}
    for name, family in page.items():
        rows = [{**scraped, **dict(labels)} for labels in family.series]
        if family.kind == "histogram":
            series[f"{name}_bucket"] = [{**row, "le": bound} for row in rows for bound in ("0.1", "+Inf")]
            series |= {f"{name}_count": rows, f"{name}_sum": rows}
        else:
            series[name] = rows
    wrong = []
    told = METRICS + (DOCS / "how-to" / "use_kv_events.md").read_text()
    texts = {
        f"{name}{part}": words(family.help)
        for name, family in page.items()
        for part in ("", "_bucket", "_count", "_sum")
    }

    def look(where: str, expression: str, record: str = "") -> None:
        plain = re.sub(r"\{<<.LabelMatchers>>\}", "", expression)
        try:
            result = evaluate(plain, series)
        except ValueError as error:
            wrong.append(f"{where}: {expression}: {error}")
            return
        helps = set[str]().union(*(texts.get(name, set()) for name in re.findall(r"[\w:]+", plain)))
        if record:
            series[record] = result or []
            texts[record] = helps
        for label, values in re.findall(r'(\w+)=~?"([^"$]*)"', plain):
            wrong.extend(
                f"{where}: {expression}: no page tells of {label} {value}"
                for value in values.split("|")
                if label != "model" and f"`{value}`" not in told and value not in helps
            )

    expressions = list(promql_of_the_pages())
    assert len(expressions) > 20
    for where, expression, record in promql_of_the_rules():
        look(where, expression, record)
    for where, expression in expressions:
        look(where, expression)
    for expression in promql_of_the_board():
        look("vllm-router.json", expression)
    none_of(wrong, "these never have a result")


def test_every_error_is_described_once() -> None:
    rows = re.findall(r"^- `(\w+)` \((\d+), `(\w+)`\): (.+)$", ERRORS, re.MULTILINE)
    documented = [(code, int(status), kind, "Retry-After" in when) for code, status, kind, when in rows]
    assert documented == [
        (code, status, kind, retry_after) for status, kind, code, _, retry_after in testing.error_rows()
    ]


def test_the_example_of_an_error_is_one() -> None:
    example = json.loads(ERRORS.split("```json\n")[1].split("```")[0])["error"]
    row = next(row for row in testing.error_rows() if row[2] == example["code"])
    assert (
        testing.error_body(row[3], row[1], row[2])
        == json.dumps({"error": example}, separators=(",", ":")).encode()
    )


def test_the_paths_of_the_page_are_those_of_the_routes() -> None:
    assert http_api_reference.render(HTTP_API) == HTTP_API, "run: python scripts/http_api_reference.py"


# A record in which every field says something.
EVERYTHING = {
    "wall_us": 1_795_258_237_123_456,
    "head_ns": 1,
    "body_ns": 2,
    "queue_ns": 1,
    "chosen_ns": 3,
    "connected_ns": 4,
    "sent_ns": 5,
    "answered_ns": 6,
    "first_body_ns": 7,
    "end_ns": 8,
    "request_id": "chatcmpl-1",
    "client": "10.0.0.7",
    "names": ("s", "p", "a"),
    "program_wait_ns": 1,
    "tenant": "t",
    "priority_class": "default",
    "claimed_class": "interactive",
    "dispatch": "queued",
    "evictions": 1,
    "method": "POST",
    "path": "/v1/chat/completions",
    "route": "/v1/chat/completions",
    "model": "m",
    "stream": True,
    "status": 200,
    "end": "worker_gone",
    "error": "worker_closed",
    "step": "relay",
    "keepalives": 1,
    "rule": "syntax",
    "cache": "miss",
    "cache_reason": "no_cache",
    "cache_ns": 1,
    "reason": "session_hash",
    "arm": "policy",
    "match": ("blocks", 1, 2),
    "pd": "local",
    "pd_local": "batch",
    "prefill_worker": testing.WorkerHandle("http://gpu-1:8000"),
    "prefill_status": 200,
    "prefill_ns": 1,
    "prefill_end_ns": 2,
    "handoff_ns": 1,
    "pd_uncached_tokens": 1,
    "pd_saved_tokens": 1,
    "pair_id": "p",
    "claim": "redeemed",
    "worker": testing.WorkerHandle("http://gpu-0:8000@1"),
    "attempts": 2,
    "attempts_made": [
        (testing.WorkerHandle("http://gpu-2:8000"), 503, ""),
        (testing.WorkerHandle("http://gpu-0:8000@1"), 200, ""),
    ],
    "reused": True,
    "retries": 1,
    "stale_retry": True,
    "continued": (1, "lost", "rerun", 1, "max", 1, testing.WorkerHandle("http://gpu-3:8000")),
    "prompt_tokens": 1,
    "completion_tokens": 1,
    "cached_tokens": 1,
}


def test_every_field_of_the_access_log_is_described_in_its_order() -> None:
    documented = re.findall(r"^- `(\w+)`", ACCESS_LOG.split("## JSON\n")[1], re.MULTILINE)
    assert documented == list(json.loads(testing.access_line("json", "consistent_hash", **EVERYTHING)))


def test_the_example_of_a_line_of_text_has_the_form_of_one() -> None:
    example = re.search(r"^    (2026-11-21 .*)$", ACCESS_LOG, re.MULTILINE)
    assert example
    fields = EVERYTHING | {"error": "", "rule": "", "end": "done", "client": "10.0.0.7", "cache": ""}
    # Clients are not told apart there, and its worker ended it.
    for name in ("tenant", "priority_class", "claimed_class", "dispatch", "evictions", "continued"):
        del fields[name]
    line = testing.access_line("text", "consistent_hash", **fields).decode().rstrip("\n")
    shape = re.compile(r"(?<==)\S+")
    assert shape.sub("", example[1]) == shape.sub("", line)
