"""SimulatedWorker: a worker without a GPU, for tests of routers and of what stands behind one.

KvEventPublisher: the KV events of an engine alone, as a test wants them.
FakeMooncakeMaster: the HTTP port of the master of a shared pool.

    from vllm_router.testing import SimulatedWorker

    with SimulatedWorker(engine="instant") as worker:
        post(worker.url)                       # a vLLM server, as far as HTTP tells
        worker.stats()["cached_tokens"]        # did the second turn come to where the first one was?

The server is C++ and runs in threads of its own; no Python runs per request.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from pathlib import Path
from types import TracebackType
from typing import Any

from vllm_router import _core, _engines
from vllm_router._fake_mooncake_master import FakeMooncakeMaster
from vllm_router._kv_event_publisher import KvEventPublisher
from vllm_router._messages import quoted

__all__ = ["CapturedRequest", "FakeMooncakeMaster", "KvCounters", "KvEventPublisher", "SimulatedWorker"]


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of a simulated worker: keyword here, flag of `vllm-router simulate-worker`."""

    name: str
    help: str
    group: str

    @property
    def default(self) -> bool | int | float | str:
        """As the C++ core has it; of a coefficient, the default engine's."""
        if self.name == "engine":
            return DEFAULT_ENGINE
        value: bool | int | float | str = getattr(_core.SimulatedWorkerOptions(), self.name)
        return value

    @property
    def shown_default(self) -> str:
        """As a person is told it."""
        if self.name in _engines.COEFFICIENTS:
            return "the engine's"
        if self.default == "":
            return "none"
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


@dataclasses.dataclass(frozen=True)
class KvCounters:
    """What became of the KV blocks of a simulated worker with a stage.

    `held`, `held_blocks` and `leaked_at_decode` are as of now, the others count from the start. They count
    requests unless they say otherwise.
    """

    held: int
    """Prefill: its blocks wait to be pulled."""
    held_blocks: int
    """Prefill: blocks of those."""
    pulled: int
    """Prefill: its blocks were read, and are free."""
    released: int
    """Prefill: freed without a transfer, by a notice of the decode worker."""
    stranded: int
    """Prefill: its lease ended before a pull."""
    double_pull: int
    """Prefill: pulls of blocks that had been pulled or released before."""
    late_pull: int
    """Prefill: pulls of blocks whose lease had ended."""
    unknown_pull: int
    """Prefill: pulls under an id that the worker never held."""
    aborted: int
    """Its client left before the engine had finished it."""
    local_prefills: int
    """Decode: prompts that it computed itself."""
    failed_pulls: int
    """Decode: pulls that failed."""
    leaked_at_decode: int
    """Decode: blocks held for pulls under way whose client has left."""
    killed: int
    """1: the engine is dead."""
    duplicate_members: int
    """Bodies refused with 400: a member is there twice, or `kv_transfer_params` is no object."""


@dataclasses.dataclass(frozen=True)
class CapturedRequest:
    """A request to one of the APIs, as it arrived at a simulated worker with a stage."""

    path: str
    headers: list[tuple[str, str]]
    """Names and values as they were written, in their order."""
    body: bytes

    def header(self, name: str) -> str | None:
        """The first value of this name, in any case; None without it."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


DEFAULT_ENGINE = "quick"

_FAULTS = "Faults (of API requests and /echo; a request may set its own by x-sim-… headers)"

_EVENTS = "KV events (over ZeroMQ in the shape of vLLM 0.32, or polled in that of TensorRT-LLM)"

_STAGES = "Stages (one half of a prefill/decode pair, as vLLM 0.32 with NIXL pull)"

_WORDS = {bool: "true or false", int: "a whole number, 0 or more", float: "a number", str: "a text"}
_PORT = "a whole number from 0 to 65535"

# The defaults and their reasons stand in cpp/simulation/batch_engine.h and simulated_worker.h.
OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("host", "Address to listen on.", "Server"),
        Option("port", "Port to listen on; 0 is any free port.", "Server"),
        Option("threads", "Number of threads, each with its own connections.", "Server"),
        Option(
            "keep_alive_s", "Idle timeout of connections in seconds, as uvicorn has it; 0 is none.", "Server"
        ),
        Option("late_head", "Send the head of a stream with the first token, as SGLang does.", "Server"),
        Option(
            "fixed_response_bytes",
            "Respond to every POST with JSON of this length in bytes; 0 is off.",
            "Server",
        ),
        Option("model", "Name of the model that the worker serves; * serves any.", "Engine"),
        Option(
            "max_model_len",
            "Maximum tokens of a prompt and its response together, within the KV memory.",
            "Engine",
        ),
        Option(
            "tool_script",
            "Turns that the model takes where a request has tools: a JSON list, or a file with one.",
            "Engine",
        ),
        Option(
            "wide_text",
            "Responses have characters of several bytes, which two or three tokens divide.",
            "Engine",
        ),
        Option(
            "ignore_prompt_ids",
            "Ignore kv_transfer_params.prompt_token_ids of chats, as vLLM before 0.32 does.",
            "Engine",
        ),
        Option("engine", "A preset of the engine's coefficients, or a YAML file of them.", "Engine"),
        Option("step_ms", "Fixed time of a step in milliseconds: the minimum between two tokens.", "Engine"),
        Option(
            "prefill_us_per_token",
            "Time in microseconds for each prompt token that a step computes.",
            "Engine",
        ),
        Option(
            "attention_ns_per_token2",
            "Time in nanoseconds for each prompt token computed and each token before it.",
            "Engine",
        ),
        Option(
            "decode_us_per_sequence",
            "Time in microseconds for each response that a step continues.",
            "Engine",
        ),
        Option(
            "context_ns_per_token",
            "Time in nanoseconds for each context token of the responses that a step continues.",
            "Engine",
        ),
        Option("speed", "Factor by which the engine is faster, from 0.01 to 1000.", "Engine"),
        Option("max_running", "Maximum number of requests computed at once.", "Engine"),
        Option("step_tokens", "Maximum number of tokens that one step computes.", "Engine"),
        Option(
            "cache_blocks", "KV memory, used and cached, in blocks; 0 means no limit and no cache.", "Engine"
        ),
        Option("block_tokens", "Number of tokens in a block.", "Engine"),
        Option("kv_events_port", "Port to publish KV events on; 0 is any free port, -1 is none.", _EVENTS),
        Option(
            "kv_events_replay_port",
            "Port that replays KV events; 0 is any free port, -1 is none.",
            _EVENTS,
        ),
        Option(
            "kv_events_buffer_steps",
            "Number of batches of KV events kept for replays, or of events for polls.",
            _EVENTS,
        ),
        Option(
            "kv_events_polled",
            "Publish no KV events, but keep them for POST /kv_cache_events, as TensorRT-LLM does.",
            _EVENTS,
        ),
        Option("stage", "prefill or decode: one half of a pair; without it a worker of its own.", _STAGES),
        Option("connector", "How the halves transfer KV blocks; there is nixl.", _STAGES),
        Option(
            "kv_load_failure_policy",
            "A transfer that fails: fail responds with 500, recompute computes the prompt.",
            _STAGES,
        ),
        Option(
            "kv_lease_s",
            "Time in seconds for which a prefill worker holds blocks that wait for a pull.",
            _STAGES,
        ),
        Option("status_code", "Respond with this error status; 0 is none.", _FAULTS),
        Option(
            "fail_first_n",
            "Fail only this many requests, with 500 unless status_code is set; 0 is no limit.",
            _FAULTS,
        ),
        Option("retry_after_s", "Retry-After of errors in seconds; 0 is none.", _FAULTS),
        Option("latency_ms", "Time in milliseconds before anything is sent.", _FAULTS),
        Option(
            "crash_after",
            "Reset all connections and close the port after this many requests; 0 is never.",
            _FAULTS,
        ),
        Option("hang", "Never respond.", _FAULTS),
        Option("garbage", "Respond with bytes that are not HTTP.", _FAULTS),
        Option("close_early", "Close the connection in the middle of the response body.", _FAULTS),
        Option(
            "close_after_bytes",
            "Close the connection after this many bytes of the response; -1 is never.",
            _FAULTS,
        ),
        Option(
            "close_after_tokens",
            "Close the connection after the events of this many tokens of a stream; -1 is never.",
            _FAULTS,
        ),
        Option("health_status", "Status that /health returns.", _FAULTS),
        Option(
            "kv_drop_batches",
            "Do not publish this many batches of KV events; replays have them.",
            _FAULTS,
        ),
        Option(
            "kv_garbage_batches",
            "Publish this many batches of KV events with a payload that is not MessagePack.",
            _FAULTS,
        ),
        Option("kv_stall", "Neither publish nor replay KV events until this ends.", _FAULTS),
    )
}


def core_options(options: dict[str, Any]) -> _core.SimulatedWorkerOptions:
    """Options by name in the form that the core takes. What is given by name wins over what the engine says.

    Raises:
        TypeError: an unknown name, or a value of the wrong type.
        ValueError: an unknown engine, or a file of one or of a script that cannot be used.
    """
    made = _core.SimulatedWorkerOptions()
    engine = options.get("engine", DEFAULT_ENGINE)
    if not isinstance(engine, str):
        raise TypeError(f"engine is {quoted(engine)}; it must be {_WORDS[str]}")
    given = {name: value for name, value in options.items() if name != "engine"}
    figures = _figures(engine)
    cache_tokens = figures.pop("cache_tokens", None)
    for name, value in (figures | given).items():
        if name not in OPTIONS:
            nearest = difflib.get_close_matches(name, OPTIONS, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(sorted(OPTIONS))}"
            raise TypeError(f"{name} is not an option of SimulatedWorker; {hint}")
        if name == "tool_script" and isinstance(value, str):
            value = _script(value)
        try:
            setattr(made, name, value)
        except TypeError:
            words = _PORT if name.endswith("port") else _WORDS[type(OPTIONS[name].default)]
            raise TypeError(f"{name} is {quoted(value)}; it must be {words}") from None
    if cache_tokens is not None and "cache_blocks" not in given:
        if not isinstance(cache_tokens, int) or cache_tokens < 0:
            raise ValueError(f"{engine} has cache_tokens {quoted(cache_tokens)}; it must be {_WORDS[int]}")
        if 0 < cache_tokens < made.block_tokens:
            raise ValueError(
                f"{engine} has cache_tokens {cache_tokens}, and a block has {made.block_tokens}; set it to "
                "one block or more, or to 0 for no cache"
            )
        made.cache_blocks = cache_tokens // max(1, made.block_tokens)
    return made


def _script(value: str) -> str:
    """A script's JSON, which may stand in a file."""
    if not value or value.lstrip().startswith("["):
        return value
    try:
        return Path(value).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ValueError(
            f"tool_script is {quoted(value)}, and this file cannot be read: {reason}; name another, or give "
            "the JSON list itself"
        ) from None


def _figures(engine: str) -> dict[str, Any]:
    """A preset or a file as options, and `cache_tokens` if the file has it; all as a replay means it."""
    if not _engines.is_file(engine):
        return dict(_engines.coefficients(engine))
    said = _engines.read_engine(engine)
    preset = said.pop("engine", next(iter(_engines.presets())))
    return {**_engines.coefficients(preset), **said.pop("coefficients"), **said}


class SimulatedWorker:
    """A vLLM-like HTTP server, from construction until `stop()` or the end of the `with` block.

    Args:
        **options: those of `vllm-router simulate-worker --help`, with underscores.
            `SimulatedWorker(engine="instant")` responds at once.

    Raises:
        TypeError: an unknown option or a value of the wrong type.
        ValueError: a value out of its range.
        OSError: it cannot listen on host and port.
    """

    def __init__(self, **options: Any) -> None:
        made = core_options(options)
        self._options = dict(options)
        self._host = made.host
        self._worker = _core.SimulatedWorker(made)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._worker.port

    @property
    def url(self) -> str:
        """`http://host:port`, without a slash at the end."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    @property
    def kv_events_port(self) -> int | None:
        """The port that publishes KV events, for a SUB socket; None without `kv_events_port`."""
        return self._worker.kv_events_port or None

    @property
    def kv_events_replay_port(self) -> int | None:
        """The port that replays KV events, for a DEALER socket; None without `kv_events_replay_port`."""
        return self._worker.kv_events_replay_port or None

    @property
    def crashed(self) -> bool:
        """Whether `crash_after` has struck."""
        return self._worker.crashed

    def stats(self) -> dict[str, Any]:
        """What happened here, in numbers.

        `requests` (to the APIs), `running`, `waiting`, `finished`, `aborted` (the client disconnected),
        `failed` (error responses), `prompt_tokens`, `cached_tokens`, `generation_tokens`, `cache_blocks`,
        `evicted_blocks`, `connections` (since the start), `open_connections`, and `paths`: requests per path.
        """
        stats: dict[str, Any] = json.loads(self._worker.stats_json())
        return stats

    def set_faults(self, **faults: Any) -> None:
        """Replaces all faults, from the next request on; without arguments the worker is well again.

        `fail_first_n` and `crash_after` count from here. A worker that has crashed stays so.
        """
        for name in faults:
            if name in OPTIONS and OPTIONS[name].group != _FAULTS:
                raise TypeError(f"{name} is not a fault; set it when you make the worker")
        self._worker.set_faults(core_options(faults))

    def restart_kv_events(self) -> None:
        """KV events go on as after a restart of the engine: the cache is empty, the next batch has number 0.

        Blocks of running requests stay in the cache and are not announced again.

        Raises:
            OSError: the worker has none (`kv_events_port`, `kv_events_polled`).
        """
        self._worker.restart_kv_events()

    @property
    def engine_id(self) -> str:
        """The id under which a worker with a stage names its blocks: `remote_engine_id`.

        Raises:
            ValueError: the worker has no stage; so do all methods below that need one.
        """
        return self._worker.engine_id

    def kv_counters(self) -> KvCounters:
        """What became of the KV blocks so far. Needs a stage."""
        return KvCounters(**json.loads(self._worker.kv_counters_json()))

    def captured(self) -> list[CapturedRequest]:
        """The requests to the APIs, the oldest first; the last 4,096 are kept. Needs a stage."""
        return [CapturedRequest(*request) for request in self._worker.captured()]

    def close_gate(self, gate: str) -> None:
        """From now on requests wait at this point, until `open_gate`. Needs a stage.

        Args:
            gate: of a prefill worker `prefill_head` (the blocks are held, nothing is sent) or `prefill_body`
                (the head is sent); of a decode worker `admission` (between API server and engine; a stream's
                head is sent), `pull_begin` (the engine has it), `pull_end` (the pull has begun, and goes on
                if the client leaves) or `first_byte` (of the body).
        """
        self._worker.set_gate(gate, True)

    def open_gate(self, gate: str) -> None:
        """Lets all requests through that wait at this gate, within a millisecond or two, and later ones."""
        self._worker.set_gate(gate, False)

    def waiting_at(self, gate: str) -> int:
        """How many requests wait at this gate now."""
        return self._worker.waiting_at(gate)

    def fail_handshakes(self, count: int) -> None:
        """So many of the next handshakes with prefill workers that it does not know fail. Needs a stage."""
        self._worker.fail_handshakes(count)

    def advance_leases(self, seconds: float) -> None:
        """Moves the clock of this worker's leases ahead, so that no test waits for them. Needs a stage."""
        self._worker.advance_leases(round(seconds * 1e9))

    def stop(self) -> None:
        """Closes the port and all connections. Again: nothing."""
        self._worker.stop()

    def __enter__(self) -> SimulatedWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self._options.items())
        return f"<SimulatedWorker {self.url}{options}>"
