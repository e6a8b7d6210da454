"""Routers of every feature, so that their scrapes together have every family of metrics."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

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
from vllm_router.testing import FakeMooncakeMaster, KvEventPublisher


def scrape_everything(stack: ExitStack, folder: Path) -> dict[str, Family]:
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
    traffic = folder / "traffic.jsonl"
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
    # And one that gets token ids from its workers.
    asking = harness.router(
        worker, policy="vllm_cache_aware", prometheus_port=0, routing={"tokenize": "worker"}
    )
    heard = parse(asking.server.metrics_text())
    shown |= {
        name: heard[name] for name in heard if re.search("_(tokenize|token_cache|kv_routing_inputs)_", name)
    }
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
    with RedisServer(folder) as meeting:
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
    certificate = Authority(folder).certify("localhost")
    guarded = harness.router(prometheus_port=0, tls_cert_path=certificate.cert, tls_key_path=certificate.key)
    files = parse(guarded.server.metrics_text())
    shown |= {name: files[name] for name in files if "_reloads_" in name or "_certificate_" in name}
    return (
        parse(remembering.server.metrics_text())
        | parse(indexed.server.metrics_text())
        | parse(router.server.metrics_text())
        | shown
    )
