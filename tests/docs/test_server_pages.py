"""The pages about the server (metrics, errors, access log, HTTP API, monitoring) against the code."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.fakes.authority import Authority
from tests.fakes.harness import Harness
from tests.fakes.kv_engine import TOKENS, Engine, open_router, wait_for
from tests.fakes.models import ModelWorker, wait_until_known
from tests.fakes.pd import WHOLE
from tests.fakes.pd_mooncake import Fabric, MooncakePrefill, mooncake_pair
from tests.fakes.prometheus_text import Family, parse
from tests.fakes.redis_server import FakeRedis, RedisServer
from tests.fakes.shared_pool import HicacheEngine
from tests.fakes.shared_pool import open_router as open_sharing_router
from tests.fakes.sse_kv_server import SseKvServer
from tests.fakes.sse_kv_server import open_router as open_prefix_router
from tests.fakes.wire import eventually, request, response
from tests.models.promql import evaluate
from tests.repo.rules import none_of
from vllm_router import _core_testing as testing
from vllm_router.testing import FakeMooncakeMaster, KvEventPublisher

DOCS = Path(__file__).parents[2] / "docs"
DEPLOY = DOCS.parent / "deploy"
METRICS, ERRORS, ACCESS_LOG, HTTP_API = (
    (DOCS / "reference" / f"{name}.md").read_text()
    for name in ("metrics", "errors", "access_log", "http_api")
)
MONITOR = (DOCS / "how-to" / "monitor.md").read_text()


def tables(page: str, heading: str) -> list[list[str]]:
    """The rows of all tables that begin with these columns."""
    rows = []
    for part in page.split(heading)[1:]:
        for line in part.splitlines()[2:]:
            if not line.startswith("|"):
                break
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))])
    return rows


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Family]]:
    """A scrape of a server that has something in every family."""
    with ExitStack() as stack:
        yield _scrape(stack, tmp_path_factory)


def _scrape(stack: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Family]:
    """What was opened for it is closed with the stack, also if it fails."""
    harness = Harness()
    stack.callback(harness.close)
    usage = b'{"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8}}}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    event = b"data: " + usage + b"\n\n"
    stream = head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(event), event)
    worker = harness.worker(lambda connection, _: connection.send(stream))
    router = harness.router(worker, policy="prefix_aware", prometheus_port=0, rate_limit_tokens_per_second=3)
    client = harness.client(router)
    for path in ("/v1/chat/completions", "/v1/embeddings"):
        assert client.ask("POST", path, body=b"{}").status == 200
    harness.client(router).ask("GET", "/x", host=None)  # no Host: refused
    router.core.reconcile("mine", [])
    router.core._report_source("mine", "timeout", "no response")
    router.core.drain_worker(worker.url)
    assert client.ask("POST", "/v1/embeddings", body=b"{}").status == 503
    while client.ask("POST", "/v1/embeddings", body=b"{}").status != 429:  # more than three in a second
        pass
    eventually(lambda: client.ask("GET", "/workers").status == 200)  # when the rate limit permits
    # An exchange is counted when it ends, and that is after its answer.
    eventually(lambda: "vllm_router_embeddings_errors_total{" in router.server.metrics_text())
    # And one whose policy has an index, and which records.
    traffic = tmp_path_factory.mktemp("record") / "traffic.jsonl"
    indexed = harness.router(worker, policy="vllm_cache_aware", prometheus_port=0, record_log=str(traffic))
    remembering = harness.router(worker, policy="cache_aware", prometheus_port=0)
    # And one that tries again in vain, until the breaker opens.
    failing = harness.worker(lambda connection, _: connection.send(response(500, b"")))
    troubled = harness.router(
        failing, prometheus_port=0, disable_retries=False, disable_circuit_breaker=False,
        retry_max_retries=2, retry_initial_backoff_ms=1, cb_failure_threshold=1,
    )  # fmt: skip
    assert harness.client(troubled).ask("POST", "/v1/embeddings", body=b"{}").status == 500
    eventually(lambda: "vllm_router_retries_exhausted_total{" in troubled.server.metrics_text())
    failures = parse(troubled.server.metrics_text())
    shown = {name: failures[name] for name in failures if "_retr" in name or "_cb_" in name}
    # And one that hears KV events.
    with KvEventPublisher() as publisher:
        publishing = open_router(
            harness, harness.worker(Engine(publisher)), policy="kv_overlap", prometheus_port=0
        )
        publisher.stored(TOKENS)
        wait_for(harness, publishing, trust="exact", next_number=1)
        publisher.repeat(0)
        wait_for(harness, publishing, dropped={"duplicate": 1})
        publisher.restart()
        publisher.stored(TOKENS[:16])
        publisher.stored(TOKENS[:16])
        wait_for(harness, publishing, incarnation=1, trust="exact")
        heard = parse(publishing.server.metrics_text())
    shown |= {
        name: heard[name]
        for name in heard
        if name.startswith("vllm_router_kv_") and "_routing_inputs" not in name
    }
    # And one with a prefix index.
    source = SseKvServer()
    redis = stack.enter_context(FakeRedis())
    prefixes = open_prefix_router(
        harness, harness.worker(source), prometheus_port=0, kv_index_backend="redis", redis_url=redis.url
    )
    source.wait_connected()
    heard = parse(prefixes.server.metrics_text())
    shown |= {name: heard[name] for name in heard if name.startswith("continuum_") or "_redis_" in name}
    # And one that caches responses, and marks prompts.
    cached = harness.router(
        worker, prometheus_port=0, response_cache=True, response_cache_backend="redis", redis_url=redis.url,
        anthropic_cache_control_injection=True,
    )  # fmt: skip
    assert harness.client(cached).ask("POST", "/v1/messages", body=b'{"system":"a"}').status == 200
    eventually(lambda: "vllm_router_cache_control_total{" in cached.server.metrics_text())
    heard = parse(cached.server.metrics_text())
    shown |= {
        name: heard[name]
        for name in heard
        if "_cache_" in name and not name.startswith(("vllm_router_shared_", "vllm_router_kv_"))
    }
    # And one of several models.
    models = harness.router(ModelWorker(harness, "a"), prometheus_port=0, model_refresh_secs=3600)
    wait_until_known(models, 1)
    heard = parse(models.server.metrics_text())
    shown |= {name: heard[name] for name in heard if "_model" in name}
    # And one that has learned how fast prompts are computed.
    measured = harness.router(worker, policy="least_load", prometheus_port=0)
    client = harness.client(measured)
    for _ in range(25):
        prompt = b'{"prompt": "%s"}' % (b"word " * 500)
        assert client.ask("POST", "/v1/completions", body=prompt).status == 200
    eventually(lambda: "vllm_router_scale_prefill_seconds_fleet{" in measured.server.metrics_text())
    heard = parse(measured.server.metrics_text())
    shown |= {name: heard[name] for name in heard if "_scale_" in name}
    # And one with a shared pool.
    with FakeMooncakeMaster() as master:
        sharing = open_sharing_router(harness, master, harness.worker(HicacheEngine()), prometheus_port=0)
        heard = parse(sharing.server.metrics_text())
    shown |= {name: heard[name] for name in heard if "shared_cache" in name}
    # And one that traces.
    tracing = harness.router(worker, prometheus_port=0, enable_trace=True, otlp_traces_endpoint=worker.url)
    heard = parse(tracing.server.metrics_text())
    shown |= {name: heard[name] for name in heard if "_trace_" in name}
    # And one that holds conversations out.
    holding_out = harness.router(worker, prometheus_port=0, holdout_percent=1)
    heard = parse(holding_out.server.metrics_text())
    shown |= {name: heard[name] for name in heard if "_holdout_" in name}
    # And one of a fleet with stages.
    prefill = harness.worker(lambda connection, _: connection.send(response(200, WHOLE)))
    staged = harness.router(
        routing={"prefill_urls": [prefill.url], "decode_urls": [harness.worker().url]},
        prometheus_port=0,
        vllm_discovery_address="127.0.0.1:0",
    )
    client = harness.client(staged)
    for prompt in (b'{"prompt":"a","kv_transfer_params":1}', b'{"prompt":["a","b"]}'):
        assert client.ask("POST", "/v1/completions", body=prompt).status == 200
    eventually(lambda: "vllm_router_pd_local_total{" in staged.server.metrics_text())
    heard = parse(staged.server.metrics_text())
    shown |= {name: heard[name] for name in heard if "_pd_" in name}
    # And one whose decode worker has failed, and whose client leaves the other one.
    failing = harness.worker(lambda connection, _: connection.send(response(500, b"{}")))
    stalling = harness.worker(lambda connection, _: connection.ending())
    broken = harness.router(
        routing={"prefill_urls": [prefill.url], "decode_urls": [failing.url, stalling.url]},
        prometheus_port=0,
        disable_retries=False,
    )
    client = harness.client(broken)
    client.send(request("POST", "/v1/completions", body=b'{"prompt":"a"}'))
    eventually(lambda: "vllm_router_pd_retries_total{" in broken.server.metrics_text())
    client.close()
    eventually(lambda: "vllm_router_pd_cancelled_total{" in broken.server.metrics_text())
    heard = parse(broken.server.metrics_text())
    shown |= {name: heard[name] for name in heard if re.search("_pd_(errors|retries|cancelled)_", name)}
    # And one that has queried a bootstrap server.
    bootstrap = MooncakePrefill(harness, Fabric())
    pair = mooncake_pair(harness, bootstrap, decode=[harness.worker()], prometheus_port=0)
    heard = parse(pair.server.metrics_text())
    shown |= {name: heard[name] for name in heard if "_bootstrap_" in name}
    # And one of a fleet of two.
    with RedisServer(tmp_path_factory.mktemp("peers")) as meeting:
        peers = [
            harness.router(
                worker, policy="auto", prometheus_port=0, routing={"peer_sync_stride_tokens": 256},
                peer_sync=meeting.url, peer_sync_interval_ms=50,
            )
            for _ in range(2)
        ]  # fmt: skip
        eventually(lambda: "vllm_router_peer_sync_heard_seconds{" in peers[0].server.metrics_text())
        heard = parse(peers[0].server.metrics_text())
        for peer in peers:
            peer.shutdown()
            peer.must_end()
    shown |= {
        name: heard[name]
        for name in heard
        if any(part in name for part in ("_peer_sync_", "_coarse_index_", "_rate_limit_"))
    }
    # And one with a program.
    acting = harness.router(worker, prometheus_port=0, program_admission="on capacity=1000")
    named = ("x-session-id", "s")
    assert harness.client(acting).ask("POST", "/v1/completions", named, body=b"{}").status == 200
    eventually(lambda: "vllm_router_program_working_set_ratio{" in acting.server.metrics_text())
    heard = parse(acting.server.metrics_text())
    shown |= {name: heard[name] for name in heard if "_program" in name}
    # One that picks workers for a gateway.
    heard = parse(harness.router(prometheus_port=0, epp_port=0).server.metrics_text())
    shown |= {name: heard[name] for name in heard if "_epp_" in name}
    # And one with files that can be read again.
    certificate = Authority(tmp_path_factory.mktemp("tls")).certify("localhost")
    guarded = harness.router(prometheus_port=0, tls_cert_path=certificate.cert, tls_key_path=certificate.key)
    files = parse(guarded.server.metrics_text())
    shown |= {name: files[name] for name in files if "_reloads_" in name or "_certificate_" in name}
    return (
        parse(remembering.server.metrics_text())
        | parse(indexed.server.metrics_text())
        | parse(router.server.metrics_text())
        | shown
    )


def test_every_metric_is_described_once_with_its_type_and_labels(page: dict[str, Family]) -> None:
    documented = {}
    for name, kind, labels, _ in tables(METRICS, "| metric | type | labels | meaning |"):
        name = f"vllm_router_{name.split('`')[1]}"
        assert name not in documented, name
        documented[name] = (kind, tuple(sorted(re.findall(r"`(\w+)`", labels))))
    for name, kind, labels, _ in tables(METRICS, "| whole name | type | labels | meaning |"):
        documented[name.strip("`")] = (kind, tuple(sorted(re.findall(r"`(\w+)`", labels))))
    scraped = {name: (family.kind, *family.label_names()) for name, family in page.items()}
    assert documented == scraped


def test_each_metric_has_a_help_text_of_its_own(page: dict[str, Family]) -> None:
    families: dict[str, list[str]] = {}
    for name, family in page.items():
        families.setdefault(family.help, []).append(name)
    assert {text: names for text, names in families.items() if len(names) > 1} == {}


def test_names_of_other_routers_have_one_that_is_here(page: dict[str, Family]) -> None:
    """mending row 30: metrics that the dashboards of smg and continuum ask for."""
    rows = tables(METRICS, "| there | here | what differs |")
    there = [row[0].strip("`") for row in rows]
    assert len(set(there)) == len(there) > 30
    for other, here, *_ in rows:
        assert f"vllm_router_{here.strip('`')}" in page, other
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
        (row,) = (row for row in tables(METRICS, "| metric | type |") if row[0] == f"`{name}`")
        family = page[f"vllm_router_{name}"]
        for label in family.label_names().pop():
            assert all(f"`{value}`" in row[3] or f'"{value}"' in row[3] for value in family.values_of(label))


def test_the_names_of_the_reference_router_are_kept() -> None:
    rows = tables(METRICS, "| metric | type | labels | meaning |")
    kept = {row[0].split("`")[1]: set(re.findall(r"`(\w+)`", row[2])) for row in rows if row[0].endswith("*")}
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

    def look(where: str, expression: str, record: str = "") -> None:
        plain = re.sub(r"\{<<.LabelMatchers>>\}", "", expression)
        try:
            result = evaluate(plain, series)
        except ValueError as error:
            wrong.append(f"{where}: {expression}: {error}")
            return
        if record:
            series[record] = result or []
        for label, values in re.findall(r'(\w+)=~?"([^"$]*)"', plain):
            wrong.extend(
                f"{where}: {expression}: no page tells of {label} {value}"
                for value in values.split("|")
                if label != "model" and f"`{value}`" not in told and f'{label}="{value}"' not in METRICS
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
    documented = [
        (code.strip("`"), int(status), kind.strip("`"), "Retry-After" in when)
        for code, status, kind, when in tables(ERRORS, "| code | status | type | when |")
    ]
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


def test_every_path_is_in_the_list_with_whom_it_goes_to() -> None:
    rows = tables(HTTP_API, "| path | goes to | request ids begin with |")
    listed = {path.strip("`"): (goes_to, prefix.strip("`")) for path, goes_to, prefix in rows}
    for route in testing.routes():
        if route["label"] == "other":
            continue
        goes_to, prefix = listed.pop(route["label"])
        assert prefix == route["id_prefix"]
        if route["label"] == "fan_out":
            assert goes_to == f"all workers: {route['allow']}"
        else:
            assert goes_to == (f"the router: {route['allow']}" if route["own"] else "a worker")
    assert listed == {}


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
    "continued": (1, "lost", "max", 1, testing.WorkerHandle("http://gpu-3:8000")),
    "prompt_tokens": 1,
    "completion_tokens": 1,
    "cached_tokens": 1,
}


def test_every_field_of_the_access_log_is_described_in_its_order() -> None:
    documented = [row[0].strip("`") for row in tables(ACCESS_LOG, "| field | unit | meaning |")]
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
