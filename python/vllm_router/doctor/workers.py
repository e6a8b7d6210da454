"""What each worker is, by the endpoints that the router reads."""

from __future__ import annotations

import concurrent.futures
import json
import re
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from vllm_router._http_get import NoReplyError, Reply, get, shown_path, tls_context
from vllm_router._messages import quoted, show
from vllm_router._secrets import shown_urls
from vllm_router.doctor.finding import Finding
from vllm_router.router_args import RouterArgs

MOST_BYTES = 4 * 2**20  # of one response
MOST_AT_ONCE = 32  # workers
MOST_REQUESTS_AT_ONCE = 64  # after health, of all workers
MOST_RANKS = 256

# After health. Where /server_info has nothing, OLD_SERVER_INFO is asked for.
ENDPOINTS = ("/v1/models", "/version", "/kv_event_sources", "/server_info", "/metrics")
OLD_SERVER_INFO = "/get_server_info"


class Source(NamedTuple):
    """A publisher of KV events."""

    rank: int
    endpoint: str


class Access(NamedTuple):
    """How to speak to workers."""

    timeout: float
    context: ssl.SSLContext | None
    headers: Mapping[str, str]
    pool: concurrent.futures.Executor

    def get(self, base: str, path: str, most_bytes: int = 0) -> Reply:
        """As `_http_get.get()`."""
        return get(
            base, path, self.timeout, context=self.context, headers=self.headers, most_bytes=most_bytes
        )


class Answer(NamedTuple):
    """What an endpoint says: its text, or the object in its JSON. Both are empty where it says nothing."""

    target: str
    text: str = ""
    value: dict[str, Any] | None = None
    problem: str = ""
    status: int = 0  # 0: there was no response
    silent: bool = False  # there was no response
    timed_out: bool = False

    @property
    def refused(self) -> bool:
        """It wants another key than it got."""
        return self.status in (401, 403)

    @property
    def members(self) -> dict[str, Any]:
        """Of the object."""
        return self.value or {}


def findings(args: RouterArgs) -> list[Finding]:
    """Of all workers, which are asked in parallel."""
    urls = [*args.worker_urls, *(url for url, _ in args.prefill_urls), *args.decode_urls]
    bases = list(dict.fromkeys(map(_base, urls)))
    context = None
    if any(base.lower().startswith("https:") for base in bases):
        try:
            context = tls_context(
                ca_file=args.worker_ca_file,
                insecure=args.worker_tls_insecure,
                cert=args.worker_cert_path,
                key=args.worker_key_path,
            )
        except OSError:
            remedy = "see the findings about the configuration"
            return [Finding("workers", "TLS", "error", "certificates for workers cannot be used", remedy)]
    headers = {"Authorization": f"Bearer {args.api_key}".encode().decode("latin-1")} if args.api_key else {}
    with (
        concurrent.futures.ThreadPoolExecutor(MOST_REQUESTS_AT_ONCE) as requests,
        concurrent.futures.ThreadPoolExecutor(MOST_AT_ONCE) as pool,
    ):
        access = Access(min(args.health_check_timeout_secs, 10), context, headers, requests)
        found = pool.map(lambda base: _of_worker(base, access, args), bases)
        return [finding for each in found for finding in each]


def _base(url: str) -> str:
    """The URL without a data-parallel rank: ranks of one server share its endpoints."""
    return re.sub(r"(@[0-9]+)?/*$", "", url)


def _section(base: str) -> str:
    return f"worker {shown_urls(base)}"


def _of_worker(base: str, access: Access, args: RouterArgs) -> list[Finding]:
    section = _section(base)
    path = args.health_check_endpoint
    shown = shown_path(path)
    start = "start it, or correct its URL; see that no firewall is between"
    try:
        health = access.get(base, path)
    except NoReplyError as error:
        return [Finding(section, "health", "error", f"GET {shown}: {error}", start)]
    if not 200 <= health.status < 300:
        root = _before_version(base)
        remedy = "see the log of the worker"
        if health.status in (401, 403):
            remedy = _key_remedy(args)
        elif health.status == 404 and root:
            remedy = f"the worker's URL should end before /v1: {shown_urls(root)}"
        return [Finding(section, "health", "error", f"GET {shown}: status {health.status}", remedy)]
    found = [Finding(section, "health", "ok", f"GET {shown}: status {health.status}")]
    # All at once: one after the other, silent ones would cost the time limit each.
    answers = {
        answer.target: answer
        for answer in access.pool.map(lambda target: _answer(base, target, access), ENDPOINTS)
    }
    if not answers["/server_info"].members and not answers["/server_info"].timed_out:
        answers[OLD_SERVER_INFO] = _answer(base, OLD_SERVER_INFO, access)
    found += [
        Finding(
            section,
            answer.target,
            "warning",
            f"GET {answer.target}: {answer.problem}",
            "see the worker's log",
        )
        for answer in answers.values()
        if answer.problem
    ]
    told = ", ".join(f"{answer.target} {answer.status or 'no response'}" for answer in answers.values())
    found.append(Finding(section, "endpoints", "ok", f"status of GET: {told}"))
    refused = ", ".join(answer.target for answer in answers.values() if answer.refused)
    if refused:
        statuses = " and ".join(sorted({str(answer.status) for answer in answers.values() if answer.refused}))
        text = f"returned {statuses} to GET {refused}"
        # Without --api-key, clients may send the engine's key themselves.
        found.append(Finding(section, "key", "error" if args.api_key else "warning", text, _key_remedy(args)))
    if all(answer.silent for answer in answers.values()):
        return found  # nothing is known of it
    return found + _described(base, answers, args)


def _key_remedy(args: RouterArgs) -> str:
    if args.api_key:
        return "--api-key is not the engine's"
    return "set --api-key to the engine's, or leave it out where each client sends that key"


def _before_version(base: str) -> str:
    """The URL before `/v1`, as clients' base URLs have it; empty if there is none."""
    at = re.search(r"(?<=[^/])/v1(/|$)", base)
    return base[: at.start()] if at else ""


def _answer(base: str, target: str, access: Access) -> Answer:
    try:
        reply = access.get(base, target, MOST_BYTES + 1)
    except NoReplyError as error:
        return Answer(target, problem=str(error), silent=True, timed_out=error.timed_out)
    if reply.status != 200:
        return Answer(target, status=reply.status)
    problem = ""
    if len(reply.body) > MOST_BYTES:
        problem = f"the response has more than {MOST_BYTES} bytes, which is the limit; "
        problem += "only the first part was used" if target == "/metrics" else "it was not used"
    if target == "/metrics":
        # A line that was cut may hold the beginning of a number.
        body = reply.body[:MOST_BYTES].rpartition(b"\n")[0] if problem else reply.body
        return Answer(target, body.decode(errors="replace"), problem=problem, status=200)
    return Answer(target, value=None if problem else _object(reply.body), problem=problem, status=200)


def _described(base: str, answers: Mapping[str, Answer], args: RouterArgs) -> list[Finding]:
    section = _section(base)
    found = []
    info = answers["/server_info"].members or answers.get(OLD_SERVER_INFO, Answer(OLD_SERVER_INFO)).members
    models = answers["/v1/models"].members
    owner = next((row["owned_by"] for row in _rows(models) if isinstance(row.get("owned_by"), str)), "")
    version = info.get("version") or answers["/version"].members.get("version")
    engine = {"vllm": "vLLM", "sglang": "SGLang"}.get(owner.lower())
    said = f" {show(version)}" if isinstance(version, str) else ""
    if answers["/v1/models"].refused:
        pass  # its key is what is missing
    elif engine:
        found.append(Finding(section, "engine", "ok", f"{engine}{said}"))
    else:
        name = f"owned_by is {quoted(owner)}" if owner else "names no owner in /v1/models"
        remedy = "what vLLM and SGLang tell of their caches may be missing"
        found.append(Finding(section, "engine", "warning", f"not known: {name}{said}", remedy))
    names = base_models(models)
    if answers["/v1/models"].refused:
        pass
    elif names:
        found.append(Finding(section, "models", "ok", ", ".join(show(name) for name in names[:8])))
    else:
        remedy = "requests for a model are matched by its name; see that GET /v1/models lists it"
        found.append(Finding(section, "models", "warning", "none are named in /v1/models", remedy))
    size = block_size(answers["/metrics"].text)
    if size is None and type(info.get("page_size")) is int and 1 <= info["page_size"] <= 4096:
        size = info["page_size"]
    if answers["/metrics"].refused:
        pass
    elif size is None:
        remedy = "set --block-size to the engine's; SGLang needs --enable-metrics"
        found.append(Finding(section, "block size", "warning", "not told in /metrics", remedy))
    else:
        found.append(Finding(section, "block size", "ok", f"{size} tokens"))
    report = answers["/kv_event_sources"].value
    if report is not None:
        sources = sources_in_report(report)
    else:
        sources = sources_in_server_info(answers["/server_info"].members)
    if any(_base(text.rpartition("=")[0]) == base for text in args.kv_event_source):
        found.append(Finding(section, "KV events", "ok", "endpoints are those of --kv-event-source"))
    elif sources:
        text = ", ".join(f"rank {source.rank} at {show(source.endpoint)}" for source in sources[:8])
        found.append(Finding(section, "KV events", "ok", f"on: {text}"))
    elif args.kv_events == "on":
        remedy = "start it with --kv-events-config, or name the endpoint with --kv-event-source"
        found.append(Finding(section, "KV events", "warning", "no source is named", remedy))
    else:
        found.append(Finding(section, "KV events", "ok", "off, or no source is named"))
    return found


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


# The next four read as kv_source_report.cc and load_report.cc do; a test compares the first three.


def base_models(models: Mapping[str, Any]) -> list[str]:
    """Names in /v1/models, without adapters."""
    return [_text(row, "id") for row in _rows(models) if row.get("parent") is None and _text(row, "id")]


def sources_in_report(report: Mapping[str, Any]) -> list[Source]:
    """Of /kv_event_sources, which vLLM has."""
    sources: dict[int, Source] = {}
    for key, value in report.items():
        if not re.fullmatch(r"[0-9]{1,9}", key) or int(key) >= MOST_RANKS or not isinstance(value, dict):
            continue
        if value.get("enable_kv_cache_events") is False or _text(value, "publisher") not in ("", "zmq"):
            continue
        if _text(value, "endpoint"):
            sources.setdefault(int(key), Source(int(key), _text(value, "endpoint")))
    return [sources[rank] for rank in sorted(sources)]


def sources_in_server_info(info: Mapping[str, Any]) -> list[Source]:
    """Of /server_info, which SGLang has."""
    told = info.get("kv_events")
    if not isinstance(told, dict) or _text(told, "publisher") not in ("", "zmq"):
        return []
    base, ranks = told.get("endpoint_port_base"), told.get("dp_size", 1)
    if type(base) is not int or not 1 <= base <= 65_535:
        return []
    count = ranks if type(ranks) is int and 1 <= ranks <= MOST_RANKS else 1
    host = _text(told, "endpoint_host") or "*"
    return [Source(rank, f"tcp://{host}:{base + rank}") for rank in range(min(count, 65_536 - base))]


def block_size(metrics: str) -> int | None:
    """Tokens of a block, as vLLM's or SGLang's metrics tell it."""
    found = [
        *re.findall(r'^vllm:cache_config_info\{[^}\n]*\bblock_size="([0-9]{1,4})"', metrics, re.MULTILINE),
        *re.findall(r'^sglang:cache_config_info\{[^}\n]*\bpage_size="([0-9]{1,4})"', metrics, re.MULTILINE),
        *re.findall(r"^sglang:page_size(?:\{[^}\n]*\})? ([0-9]{1,4})(?:\.0*)?$", metrics, re.MULTILINE),
    ]
    sizes = [int(text) for text in found if 1 <= int(text) <= 4096]
    return max(sizes, default=None)


def _rows(models: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = models.get("data")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    return text if isinstance(text, str) and len(text.encode(errors="replace")) <= 512 else ""
