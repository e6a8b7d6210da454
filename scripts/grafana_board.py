"""Writes the Grafana board: python scripts/grafana_board.py > deploy/grafana/vllm-router.json."""

from __future__ import annotations

import json
from typing import Any

ROUTER = 'job=~"$job", instance=~"$instance"'
WORKER = ROUTER + ', worker=~"$worker"'
PER_ROUTER = "sum by (job, instance)"

# Rows of panels: title, unit, description, and expressions with their legends.
# In an expression, $R stands for the selectors of a router, and $W for those of a worker too.
Panel = tuple[str, str, str, dict[str, str]]
STATS = "Overview"
ROWS: dict[str, list[Panel]] = {
    STATS: [
        (
            "Healthy workers",
            "none",
            "Workers that pass their health checks. At 0 every request gets 503.",
            {"sum(vllm_router_worker_health{$W})": "healthy"},
        ),
        (
            "Request rate",
            "reqps",
            "Requests for workers that ended, whatever their result.",
            {"sum(instance:vllm_router_requests:rate5m{$R})": "requests"},
        ),
        (
            "Error share",
            "percentunit",
            "Highest share of one router's requests that got no complete 2xx response.",
            {"max(instance:vllm_router_errors:ratio_rate5m{$R})": "errors"},
        ),
        (
            "TTFT p95",
            "s",
            "Time to first token of streams: 95th percentile of the slowest router.",
            {"max(instance:vllm_router_ttft_seconds:p95_rate5m{$R})": "p95"},
        ),
        (
            "Cached share",
            "percentunit",
            "Share of prompt tokens that workers found in their caches, as `usage` says; mean of routers.",
            {"avg(instance:vllm_router_cached_tokens:ratio_rate5m{$R})": "cached"},
        ),
    ],
    "Traffic": [
        (
            "Successful requests by route",
            "reqps",
            "Requests for workers that got a complete 2xx response.",
            {"sum by (route) (rate(vllm_router_requests_total{$R}[5m]))": "{{route}}"},
        ),
        (
            "Responses by status",
            "reqps",
            "Responses to clients, the router's own included.",
            {"sum by (code) (rate(vllm_router_http_responses_total{$R}[5m]))": "{{code}}"},
        ),
        (
            "Requests in flight",
            "none",
            "Requests admitted to workers, their limit, and requests that wait in the queue.",
            {
                "sum(vllm_router_concurrent_requests{$R})": "admitted",
                "sum(vllm_router_concurrent_requests_limit{$R})": "limit",
                "sum(vllm_router_queue_depth{$R})": "queued",
            },
        ),
        (
            "Tokens",
            "cps",
            "Prompt and generated tokens per second, as `usage` in responses says.",
            {
                "sum(rate(vllm_router_prompt_tokens_total{$W}[5m]))": "prompt",
                "sum(rate(vllm_router_completion_tokens_total{$W}[5m]))": "generated",
            },
        ),
    ],
    "Time to first token": [
        (
            "Time to first token by router",
            "s",
            "Streams only: from the complete request head to the first byte of the worker's event stream.",
            {
                f"instance:vllm_router_ttft_seconds:{p}_rate5m{{$R}}": f"{p} {{{{instance}}}}"
                for p in ("p50", "p95", "p99")
            },
        ),
        (
            "Time to first token by worker, p95",
            "s",
            "The same by worker. A slow one stands out.",
            {
                "histogram_quantile(0.95, sum by (le, worker) "
                "(rate(vllm_router_ttft_seconds_bucket{$W}[5m])))": ("{{worker}}")
            },
        ),
        (
            "Router overhead, p99",
            "s",
            "What the router adds before a worker sees the request; normally far below a millisecond.",
            {
                "histogram_quantile(0.99, sum by (le, instance) "
                "(rate(vllm_router_overhead_seconds_bucket{$R}[5m])))": ("{{instance}}")
            },
        ),
        (
            "Head of the response by worker, p95",
            "s",
            "From the first byte written to the worker to the head of its response: the engine's part.",
            {
                "histogram_quantile(0.95, sum by (le, worker) "
                "(rate(vllm_router_upstream_head_seconds_bucket{$W}[5m])))": "{{worker}}"
            },
        ),
    ],
    "Caches": [
        (
            "Cached tokens by worker",
            "percentunit",
            "Share of prompt tokens that the worker found in its cache. Streams tell it if the client asks.",
            {
                "sum by (worker) (rate(vllm_router_cached_tokens_total{$W}[5m]))"
                " / sum by (worker) (rate(vllm_router_prompt_tokens_total{$W}[5m]))": "{{worker}}"
            },
        ),
        (
            "Matched blocks",
            "percentunit",
            "Share of prompt blocks that the chosen worker was thought to hold (policies that match blocks).",
            {
                "sum(rate(vllm_router_matched_blocks_total{$R}[5m]))"
                " / sum(rate(vllm_router_prompt_blocks_total{$R}[5m]))": "matched"
            },
        ),
        (
            "KV events received",
            "cps",
            "Batches of KV events applied to the index, and lost for good. Only while workers publish them.",
            {
                "sum by (worker) (rate(vllm_router_kv_batches_applied_total{$W}[5m]))": "applied {{worker}}",
                "sum by (worker) (rate(vllm_router_kv_batches_lost_total{$W}[5m]))": "lost {{worker}}",
            },
        ),
        (
            "KV event sources by state",
            "none",
            "Sources of KV events by trust. `silent` and `mismatch` need attention.",
            {"sum by (state) (vllm_router_kv_trust{$W})": "{{state}}"},
        ),
    ],
    "Load per worker": [
        (
            "Open requests",
            "none",
            "Requests that the worker has from this router.",
            {"sum by (worker) (vllm_router_running_requests{$W})": "{{worker}}"},
        ),
        (
            "Waiting requests",
            "none",
            "Open requests that have no first token yet.",
            {"sum by (worker) (vllm_router_waiting_requests{$W})": "{{worker}}"},
        ),
        (
            "Imbalance",
            "none",
            "Most open requests of a worker, divided by the mean; 1 is even.",
            {
                "max by (job, instance) (vllm_router_max_load{$R})"
                " / clamp_min(avg by (job, instance) (vllm_router_running_requests{$R}), 1)": "{{instance}}"
            },
        ),
        (
            "Decisions by reason",
            "ops",
            "Why requests went where they did.",
            {"sum by (reason) (rate(vllm_router_decision_reasons_total{$R}[5m]))": "{{reason}}"},
        ),
    ],
    "Priority classes": [
        (
            "Requests that wait, by class",
            "none",
            "Requests waiting for a worker with room for their priority class.",
            {"sum by (class) (vllm_router_class_queue_depth{$R})": "{{class}}"},
        ),
        (
            "Wait by class, p95",
            "s",
            "Of requests that had to wait: how long, however the wait ended.",
            {
                "histogram_quantile(0.95, sum by (le, class) "
                "(rate(vllm_router_class_queue_wait_seconds_bucket{$R}[5m])))": "{{class}}"
            },
        ),
        (
            "Shed and displaced requests",
            "reqps",
            "Requests that got no place at a worker, by class and reason.",
            {
                "sum by (class, reason) (rate(vllm_router_class_rejected_total{$R}[5m]))": (
                    "{{class}} {{reason}}"
                )
            },
        ),
        (
            "Why classes wait",
            "percentunit",
            "Share of the time in which a class waited and no worker had room, by most workers' reason.",
            {
                "sum by (class, why) (rate(vllm_router_class_closed_seconds_total{$R}[5m]))": (
                    "{{class}} {{why}}"
                )
            },
        ),
    ],
    "Tenants": [
        (
            "Tokens by tenant",
            "cps",
            "Prompt and generated tokens per second, as `usage` in responses says.",
            {'sum by (tenant) (rate(vllm_router_tenant_tokens_total{$R, kind!="cached"}[5m]))': "{{tenant}}"},
        ),
        (
            "Limits hit by tenant",
            "reqps",
            "Requests that a tenant's limits rejected, by the code of their error.",
            {
                "sum by (tenant, reason) (rate(vllm_router_tenant_rejected_total{$R}[5m]))": (
                    "{{tenant}} {{reason}}"
                )
            },
        ),
        (
            "Cached share by tenant",
            "percentunit",
            "Share of a tenant's prompt tokens that workers found in their caches.",
            {
                'sum by (tenant) (rate(vllm_router_tenant_tokens_total{$R, kind="cached"}[5m]))'
                ' / sum by (tenant) (rate(vllm_router_tenant_tokens_total{$R, kind="prompt"}[5m]))': (
                    "{{tenant}}"
                )
            },
        ),
        (
            "Tenants with limits",
            "none",
            "Tenants with limits of their own now, and requests per second whose tenant had to share some.",
            {
                "sum(vllm_router_limited_tenants{$R})": "tenants",
                "sum(rate(vllm_router_tenant_limits_shared_total{$R}[5m]))": "shared",
            },
        ),
    ],
    "Programs": [
        (
            "Programs by state",
            "none",
            "Conversations of agents: with a request under way, between two, waiting, or paused.",
            {"sum by (state) (vllm_router_programs{$R})": "{{state}}"},
        ),
        (
            "Wait of programs, p95",
            "s",
            "Of requests that had to wait, since their program was paused.",
            {
                "histogram_quantile(0.95, sum by (le) "
                "(rate(vllm_router_program_wait_seconds_bucket{$R}[5m])))": "p95"
            },
        ),
        (
            "How turns go on",
            "reqps",
            "Requests of programs by how they went on; forced ones waited for as long as they may.",
            {"sum by (how) (rate(vllm_router_program_turns_total{$R}[5m]))": "{{how}}"},
        ),
        (
            "Working sets",
            "percentunit",
            "Tokens of a worker's active programs, as a share of its KV cache, where that is known.",
            {"max by (worker) (vllm_router_program_working_set_ratio{$W})": "{{worker}}"},
        ),
    ],
    "Failures": [
        (
            "Errors by type",
            "reqps",
            "Requests for workers that got no complete 2xx response.",
            {"sum by (error_type) (rate(vllm_router_request_errors_total{$R}[5m]))": "{{error_type}}"},
        ),
        (
            "Circuit breakers",
            "none",
            "State of each worker's breaker: 0 closed, 1 open, 2 half-open.",
            {"max by (worker) (vllm_router_cb_state{$W})": "{{worker}}"},
        ),
        (
            "Attempts that were repeated",
            "ops",
            "Failed attempts that were followed by a retry, by worker; and connections that workers refused.",
            {
                "sum by (worker) (rate(vllm_router_failed_attempts_total{$W}[5m]))": "{{worker}}",
                'sum(rate(vllm_router_upstream_connects_total{$R, result="failed"}[5m]))': "refused",
            },
        ),
        (
            "Rejected requests",
            "reqps",
            "Requests that were not admitted, by reason.",
            {"sum by (reason) (rate(vllm_router_admission_rejected_total{$R}[5m]))": "{{reason}}"},
        ),
    ],
    "Process": [
        (
            "CPU",
            "none",
            "Cores that the process uses.",
            {f"{PER_ROUTER} (rate(vllm_router_process_cpu_seconds_total{{$R}}[5m]))": "{{instance}}"},
        ),
        (
            "Memory",
            "bytes",
            "Resident memory of the process, and memory of the block index.",
            {
                "vllm_router_process_resident_memory_bytes{$R}": "resident {{instance}}",
                "vllm_router_index_bytes{$R}": "index {{instance}}",
            },
        ),
        (
            "Connections",
            "none",
            "Open connections of clients, and to workers by state.",
            {
                "sum(vllm_router_client_connections{$R})": "clients",
                "sum by (state) (vllm_router_upstream_connections{$R})": "workers, {{state}}",
            },
        ),
        (
            "Uptime",
            "s",
            "Time since the server started.",
            {"time() - vllm_router_start_time_seconds{$R}": "{{instance}}"},
        ),
    ],
}

SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def variable(name: str, query: str) -> dict[str, Any]:
    """A variable that is a choice of label values."""
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def panel(described: Panel, kind: str, place: dict[str, int], number: int) -> dict[str, Any]:
    """One panel, with the selectors put into its expressions."""
    title, unit, description, expressions = described
    targets = [
        {
            "refId": chr(ord("A") + index),
            "expr": expression.replace("$R", ROUTER).replace("$W", WORKER),
            "legendFormat": legend,
        }
        for index, (expression, legend) in enumerate(expressions.items())
    ]
    return {
        "id": number,
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def panels() -> list[dict[str, Any]]:
    """All rows and panels, placed one row below the other."""
    made: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        place = {"h": 1, "w": 24, "x": 0, "y": y}
        made.append(
            {
                "id": len(made) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": place,
                "panels": [],
            }
        )
        kind, height = ("stat", 4) if title == STATS else ("timeseries", 8)
        width = 24 // len(row)
        for index, described in enumerate(row):
            place = {"h": height, "w": width, "x": index * width, "y": y + 1}
            made.append(panel(described, kind, place, len(made) + 1))
        y += 1 + height
    return made


def board() -> dict[str, Any]:
    """What Grafana imports."""
    health = "vllm_router_worker_health"
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    variables = [
        source,
        variable("job", f"label_values({health}, job)"),
        variable("instance", f'label_values({health}{{job=~"$job"}}, instance)'),
        variable("worker", f"label_values({health}{{{ROUTER}}}, worker)"),
    ]
    return {
        "uid": "vllm-router",
        "title": "vllm-router",
        "tags": ["vllm-router"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": panels(),
    }


def text() -> str:
    """The board as JSON, with one panel or variable per line."""
    made = board()
    variables = made.pop("templating")["list"]
    listed = made.pop("panels")

    def lines(items: list[dict[str, Any]]) -> str:
        return "[\n" + ",\n".join(json.dumps(item) for item in items) + "\n]"

    rest = json.dumps(made, indent=1)[:-2]
    return f'{rest},\n "templating": {{"list": {lines(variables)}}},\n "panels": {lines(listed)}\n}}\n'


if __name__ == "__main__":
    print(text(), end="")
