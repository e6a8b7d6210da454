"""Writes the reference: python scripts/simulated_worker_reference.py > docs/reference/simulated_worker.md."""

# ruff: noqa: E501, since a row of a table is one line
from __future__ import annotations

from vllm_router._engines import COEFFICIENTS
from vllm_router.testing import OPTIONS, Option

HEAD = """\
# Simulated worker

A vLLM server without a GPU: the pace of an engine, a prefix cache, and faults on request. Its text is nonsense, always the same for the same prompt. [Test
with simulated workers](../how-to/test_with_simulated_workers.md) shows it at work.

    vllm-router simulate-worker --port 8001 --engine h200_32b --cache-blocks 20000

```python
from vllm_router.testing import SimulatedWorker

with SimulatedWorker(engine="instant") as worker:
    print(worker.url, worker.stats())
```

The command prints one line with its URL when it listens, and runs until SIGTERM or SIGINT. Exit status: 0 after a signal, 1 when it
cannot listen or has crashed (`--crash-after`), 2 for a mistake on the command line. [The class in
Python](python_api.md#testingsimulatedworker). `scripts/simulated_worker_reference.py` writes this page.

## Options

A flag is a keyword in Python, with `_`: `--step-ms` is `step_ms`. Times may have a fraction.
"""

TAIL = """
`--threads` above 1 shares one port and one engine among that many threads; connections stay on theirs.
`--fixed-response-bytes` responds to every POST at once, without parsing it: for benchmarks of proxies in front.

## Endpoints

| path | method | response |
|---|---|---|
| `/v1/chat/completions` | POST | OpenAI's, streamed or whole; `system_fingerprint` is `sim-` and the worker's port |
| `/v1/completions` | POST | OpenAI's; `prompt` is a text, several, token ids, or several lists of them |
| `/v1/responses` | POST | OpenAI's; `GET` with an upgrade is a [WebSocket](#responses-over-a-websocket) |
| `/v1/messages` | POST | Anthropic's |
| `/inference/v1/generate` | POST | vLLM's: `token_ids` and `sampling_params` in, token ids out, with `"output_mode": "text"` their text |
| `/v1/embeddings` | POST | numbers that depend on the input alone; `dimensions` (64), `encoding_format` |
| `/tokenize` | POST | `{"count": 3, "max_model_len": 131072, "tokens": [...], "token_strs": null}` |
| `/detokenize` | POST | `{"prompt": "..."}` |
| `/v1/messages/render` | POST | `{"request_id": "7", "token_ids": [...]}` and more: what the engine would compute for the request |
| `/v1/responses/render` | POST | the same |
| `/v1/messages/count_tokens` | POST | `{"input_tokens": 3}` |
| `/v1/responses/input_tokens` | POST | `{"object": "response.input_tokens", "input_tokens": 3}` |
| `/v1/conversations` | POST | OpenAI's `{"id": "conv_...", "object": "conversation"}`; [below it](#conversations) are what it has made |
| `/v1/models` | any | the one model |
| `/health` | any | 200 and nothing, or `--health-status` |
| `/ping` | any | as `/health` |
| `/version` | any | `{"version": "simulated"}` |
| `/load` | any | `{"server_load": 0}`: requests in the engine |
| `/metrics` | any | Prometheus text with names of vLLM's: `vllm:num_requests_running`, `vllm:prefix_cache_hits_total` and others |
| `/reset_prefix_cache` | any | forgets the cache; `{"success": true}` |
| `/kv_event_sources` | any | where [KV events](#kv-events) are published, as vLLM says it; `{}` without them |
| `/kv_cache_events` | POST | [KV events](#kv-events) since the last such request, as of TensorRT-LLM; `[]` without `--kv-events-polled` |
| `/stats` | any | [statistics](#statistics) |
| `/echo` | any | what arrived: `method`, `path`, `query`, `headers` as pairs, `body_bytes`, `body_crc32`, and the worker's `port`. So does every path below `/echo/`. |

Another method on a POST path gets 405, another path 404, a bad request 400 and an unknown model 404, with errors as vLLM writes them.
`x-request-id` becomes the end of the response's `id`.

Read of a request: `model`, `messages` (`prompt`, `input`, `system`, `instructions`, `tools`) as text, `max_tokens`
(`max_completion_tokens`, `max_output_tokens`), `n`, `stream`, `stream_options.include_usage`, `return_token_ids`; of chats, completions and
generate `seed` beside a temperature, and `stop` of one choice; of chats `kv_transfer_params.prompt_token_ids`, [the prompt](#tokens-and-text). Without a
length a chat's response has 64 tokens and a completion 16; `finish_reason` is `length` where one was given, else `stop`.

## Tool calls

With `--tool-script` the model works through a task: where a request has tools, its response is a turn of the script, in the form of its API
(`tool_calls`, `tool_use` blocks, `function_call` items), streamed or whole.

```json
[{"text": "I look.", "calls": [{"name": "bash", "arguments": {"command": "ls"}}]},
 {"text": "Done."}]
```

A turn has a text, calls, or both. Its number is that of responses since the user's last message, and the last turn repeats, so any worker that has the script can continue. A
request without tools gets text of 64 tokens, or fewer if it says so. Of a turn, the next request can find its text in the cache, not its calls.

## Responses over a WebSocket

`GET /v1/responses` with `Upgrade: websocket`, as Codex has it (`supports_websockets`). Each message of type `response.create` is a request, each
event of its response a message; compression is declined. `previous_response_id` continues the last response of this connection (another id:
`previous_response_not_found`). `"generate": false` computes the prompt, and the response is empty. Not with `--stage`.

## Conversations

`POST /v1/conversations` makes a conversation, kept until the worker ends: `GET`, `POST` (other `metadata`) and `DELETE` of
`/v1/conversations/{id}`, `GET` and `POST` of `.../items`, `GET` and `DELETE` of `.../items/{item_id}`. A request to `/v1/responses` whose
`conversation` is that id, or an object with it, has its items before the `input`, and adds input and response to them. Another id is 404.
Not in responses with `--stage` or over a WebSocket.

## Tokens and text

Four bytes of text are a token, whose id is these bytes as a little-endian number; the last one is padded with zeros. So equal prefixes of
texts have equal tokens. A chat becomes text by a plain template:

    <|system|>\\nBe brief.\\n<|user|>\\nHello\\n<|assistant|>\\n

Each token of a response is a blank and a word of three letters, drawn by a hash of all ids before it. So a request whose prompt is the ids of
another one's prompt and of the first part of its response goes on as that response does: a completion, `/inference/v1/generate`, or the same
chat with `kv_transfer_params.prompt_token_ids`. A `seed` at another temperature than 0 counts from the begin of the request, so that such a
response goes on otherwise, and a chat without a length ends where the first one would have.

With `--wide-text` an eighth of the words is é, 海 or 😀, which two or three tokens divide. A stream shows a character with its last token. As of vLLM
0.32, the first text behind a prompt that ends inside a character is that whole prompt.

A stream holds text back that may be the begin of a `stop` string. It ends with the token that completes one.

## Time

The worker runs the [engine model](../explanation/engine_model.md) of a [replay](replay.md) in real time, its steps divided by `--speed`. `--engine` names a
[preset](replay.md#the-fleet) or a YAML file; a coefficient given as an option overrides it.

Each prompt of a request is a sequence of its own; the `n` responses to a prompt are one.

## The KV memory

Blocks of `--block-tokens` tokens, `--cache-blocks` in all, for running requests and for what is cached. A request begins when there is
space for its whole prompt and response; one that can never have it is rejected with 400: the context is `--max-model-len`, or what the memory
holds if that is less. With `--cache-blocks 0` there is no limit and nothing is cached.

Hits are [those of the engine model](../explanation/engine_model.md#memory), the last token of a prompt always recomputed: a prompt of 16
tokens never hits, one of 17 tokens can hit 16.

`usage` reports hits: `prompt_tokens_details.cached_tokens`, `input_tokens_details.cached_tokens` in `/v1/responses`,
`cache_read_input_tokens` in `/v1/messages`, where `input_tokens` excludes them, as in engines.

## KV events

With `--kv-events-port` the worker publishes over ZeroMQ as vLLM 0.32 does: messages of three frames, an empty topic, the number of the batch
(8 bytes, big-endian, from 0) and a MessagePack payload `[seconds, events, 0]`. Each step that changed something is a batch: a `BlockRemoved`
for each evicted block, then a `BlockStored` for each request that stored blocks, once they can be hit (those of a response with its end).
`/reset_prefix_cache` is announced with the next step: as `AllBlocksCleared`, or block by block while requests hold others.

`--kv-events-replay-port` responds to the frames `["", number]` with `["", "", number, payload]` for each batch kept from that number
on, then with `["", "", 2^64 - 1, ""]`. `GET /kv_event_sources`, `SimulatedWorker.kv_events_port` and `kv_events_replay_port` have the ports.

With `--kv-events-polled` `POST /kv_cache_events` gives each event once, as TensorRT-LLM, numbered from 0, the first one about the capacity.
The last `--kv-events-buffer-steps` are kept. A cache that is emptied is a `removed` with all of its blocks. Faults of KV events do not affect
these.

## Stages

With `--stage` a worker is one half of a prefill/decode pair, as vLLM 0.32 with NIXL pull. The KV blocks are in the memory of the
process: both halves must be in one process, as they are in a test. In Python:

```python
with SimulatedWorker(stage="prefill") as prefill, SimulatedWorker(stage="decode") as decode:
    ...
    prefill.kv_counters().stranded  # requests whose lease ended before a pull
```

- A prefill worker whose request has `kv_transfer_params.do_remote_decode` holds the blocks of the prompt and names them in the response, in 14
  members; else the member is `null`. A stream holds them too and does not say so. They are free after a pull, a notice of the decode worker
  or `--kv-lease-s`, and if the client leaves before the prompt is computed. While too few blocks are free, responses wait.
- A decode worker with such parameters pulls the blocks, computes nothing of the prompt, and reports the prefill worker's `cached_tokens`.
  Each token of blocks that were reused, are of another prompt, or whose lease has ended is ` GARBAGE`. Without parameters it computes the
  prompt itself.
- A pull that fails (a dead prefill worker, another engine, blocks that are none) is 500, in a stream an event of it; with
  `--kv-load-failure-policy recompute` the prompt is computed.
- Each prompt and each of `n` choices holds blocks of its own, and a response names those of one.
- Parameters that name fewer blocks than a prompt needs, or lack a host, an engine, a request, a port or blocks, end the decode engine: everything is 500 then, and `/health` 503.
- A request that decode rejects frees the blocks at prefill, unless it is no JSON or a member has a wrong type (error type `Bad Request`).
- A decode client that leaves before the engine has the request leaves the blocks held; before the pull, they are freed at once; during the
  pull, both sides keep them until it has ended.
- `close_gate()` and `open_gate()` hold requests at six points, `captured()` has the bytes that arrived, `advance_leases()` moves the clock.

Not as in the engine: a decode worker does not look into its own cache before it pulls nor keep what it pulled, and a transfer takes no time.

## Faults

They affect requests to the POST paths and to `/echo`, not `/health`, `/metrics` and `/stats`. Of several, the first in this order that
applies decides: `crash_after`, `latency_ms` (which only delays), `hang`, `garbage`, `status_code` and `fail_first_n`; the others
change a response under way.

- `crash_after=3` lets three requests through. The next one resets every connection, closes the port, and ends the command.
- `fail_first_n=3` fails three requests only. Without `status_code` they get 500.
- `close_early` breaks off half way through the tokens or the body. Not for `/tokenize`, `/detokenize` and `/echo`.
- `close_after_bytes=100` counts from the first byte of the head, so it can cut heads and chunks anywhere.
- `close_after_tokens=5` breaks a stream off behind the events of five tokens.
- `kv_drop_batches` and `kv_garbage_batches` count from the time they are set. While `kv_stall` is set, batches wait, as many as
  `--kv-events-buffer-steps`; those before are lost. `SimulatedWorker.restart_kv_events()` empties the cache and numbers from 0.

`SimulatedWorker.set_faults()` replaces all faults of a running worker. A request can have its own:

| header | value | as |
|---|---|---|
| `x-sim-status` | 200 to 599 | `status_code` |
| `x-sim-retry-after` | seconds | `retry_after_s` |
| `x-sim-delay-ms` | milliseconds | `latency_ms` |
| `x-sim-hang` | 1 | `hang` |
| `x-sim-garbage` | 1 | `garbage` |
| `x-sim-close-early` | 1 | `close_early` |
| `x-sim-close-after-bytes` | bytes | `close_after_bytes` |
| `x-sim-close-after-tokens` | tokens | `close_after_tokens` |

The router passes these headers on. A value that is not a whole number is ignored.

## Statistics

`GET /stats` and `SimulatedWorker.stats()`:

| field | meaning |
|---|---|
| `requests` | requests to the POST paths, good or bad; of a WebSocket, the upgrade and each message |
| `running` | prompts and responses being computed |
| `waiting` | prompts that wait for room in a step, or for memory |
| `finished` | complete responses |
| `aborted` | the client left before that |
| `failed` | ended with an error, or broken off, injected or not |
| `prompt_tokens` | of all prompts whose responses have begun |
| `cached_tokens` | those of them that were in the cache |
| `generation_tokens` | of all responses, as far as they went |
| `cache_blocks` | that can be hit now |
| `evicted_blocks` | that were evicted |
| `connections` | accepted since the start |
| `open_connections` | open now |
| `paths` | requests per path, whatever their method |

## What it is not

It does not sample or preempt, nor [what the engine model leaves out](../explanation/engine_model.md#what-it-leaves-out). It shows what
routing does to caches, queues and failures, not how fast a model is.
"""


def render() -> str:
    """The whole page."""
    page = HEAD
    for group in dict.fromkeys(option.group for option in OPTIONS.values()):
        page += f"\n### {group.split(' (')[0]}\n\n"
        for option in OPTIONS.values():
            if option.group == group:
                default = "off" if option.default is False else _code(option)
                page += f"- `--{option.name.replace('_', '-')}` = {default}: {option.help}\n"
    return page + TAIL


def _code(option: Option) -> str:
    plain = option.name in COEFFICIENTS or option.default == ""
    return option.shown_default if plain else f"`{option.shown_default}`"


if __name__ == "__main__":
    print(render(), end="")
