"""Writes the reference: python scripts/replay_reference.py > docs/reference/replay.md."""

# ruff: noqa: E501, since a row of a table is one line
from __future__ import annotations

from vllm_router import _engines
from vllm_router.replay.command import make_parser

HEAD = """\
# Replay

Plays traffic to a simulated fleet, once for each policy, through the router's own policies in simulated time. [Replay your
traffic](../how-to/replay_your_traffic.md) shows it at work, [performance](../explanation/performance.md) its results.
`scripts/replay_reference.py` writes this page.

    vllm-router replay trace.jsonl --policy all --workers 8
    vllm-router replay --workload chat --load 0.85 --seeds 3 --policy everything --html report.html

```python
from vllm_router.replay import Fleet, generate, run

rows = run(generate("rag", size=800), ["least_load", "consistent_hash"], Fleet(workers=4), rate=2.0)
print({row["policy"]: round(row["hit_share"], 2) for row in rows})
```

Exit status: 0 when all was simulated, 2 for a mistake on the command line or in a file, 1 when a report could not be written.
Equal arguments give equal results, byte for byte.

## Flags

Names may be written with `-` or `_`.
"""

TAIL = """
## Policies

A policy is a name, or a name with options after a colon: `consistent_hash:hash_load_factor=1.25,virtual_nodes=100`. Several values
with `|` between them are a sweep. Names and options are those of [policies](policies.md) and of [the command line](cli.md);
`block_size` is the trace's, and an index of blocks is as large as the caches unless `max_blocks_per_worker` says otherwise.
Policies that match blocks take `events_delay_s` as well: with it they hear the KV events of all workers so many seconds late, as
from workers whose events are exact, and with several `--routers` each hears them.

`compare_…` policies, in the replay only and never recommended, are

- other routers' formulas as published; those that score workers take `events_delay_s`: with it they know the caches by KV events so many
  seconds late, without it by what they sent;
- former versions of `auto` (`compare_auto_v1`, `compare_auto_v2`, `compare_auto_b0`, the second without its price of later work), and `auto` with parts
  left out or changed (`compare_auto_one_speed`, `compare_auto_no_balance`, `compare_auto_no_copies`, `compare_auto_dear_moves`).

Policies are recommended by p90 of the time to first token, and not from fewer than 100 requests.

## Traffic

| format | recognised by | blocks |
|---|---|---|
| `mooncake` | JSON lines with `timestamp` (ms), `input_length`, `output_length`, `hash_ids` | 512 tokens; sessions inferred from shared blocks |
| `bailian` | JSON lines with `chat_id`, `parent_chat_id`, `timestamp` (s), lengths, `hash_ids` | 16 tokens; sessions are chats |
| `azure` | CSV with `TIMESTAMP`, `ContextTokens`, `GeneratedTokens` | none: no prompt shares anything |
| `record` | the server's [record log](record_log.md) | as its head says |
| `weka` | JSON lines with `block_size` and `requests`, a session each | as each says; ids are a session's own unless `hash_id_scope` is `global` |
| `tracelab` | JSON lines with `session_id`, `input_tokens_total`, `prefix_tokens`, `timing_events` | 512 tokens; a prompt longer than its session's one before continues it |

A line that does not fit is reported with its number and skipped, and so is a truncated end; `--strict` ends there instead. Times
that go back end the reading unless `--sort` is given; a record log is always sorted.

`weka` has the AgentX traces of SemiAnalysis (`jq -c . traces/*.json > traces.jsonl`), `tracelab` TraceLab: sessions of coding agents, as [closed
loops](#closed-loops).

| workload | requests | mean in / out | ideal hit | contents |
|---|--:|--:|--:|---|
| `chat` | about 14,500 | 3,450 / 250 | 84 % | 40 Zipf tenants, system prompts of 0.5k to 4k tokens, 5 turns, think time 5 s + Exp(60 s) |
| `rag` | 6,000 | 7,373 / 1,000 | 95 % | 150 groups of 5 users; 6,144 shared + 1,229 own tokens; prompts repeat |
| `adv` | 10,000 | 4,900 / 190 | 58 % | 512 shared tokens + unique rest; 30 % share a viral 8k prefix |
| `hot` | 12,000 | 3,000 / 400 | 82 % | 60 % share 4k tokens and differ in 40; mostly decoding |
| `agents` | about 6,700 | 118,000 / 660 | 96 % | 40 coding agents, 120 sessions of 20 to 100 turns with pauses of 1 to 600 s, 44 % with subagents ([more](../explanation/agents.md)) |
| `users` | 6,000 | 3,400 / 250 | 84 % | the chats of `chat`: 200 users, 1,200 chats, think time 5 s + Exp(30 s) |
| `demo` | 1,920 | 443 / 24 | 75 % | what `vllm-router demo` sends: 12 users, 240 chats of 8 turns, think time 0.15 to 0.45 s |
| `classes` | about 8,500 | 3,600 / 300 | 53 % | the chats of `chat` as `interactive`, and as `batch` a job of 4,000 + 400 tokens, one request for two turns |
| `tenants` | about 16,400 | 6,000 / 130 | 95 % | 8 tenants, each with 20 documents of 6,000 tokens and 64 requests open, `flood` with 512; `light` with a request every two seconds |

Blocks have 128 tokens, of `agents` 512, of `demo` 16. `--rate` and `--load` stretch the times; `--poisson` replaces them.

### Closed loops

Agents and users go on a pause after the response before, a parent after its subagents. So responses set the rate, and `--rate`, `--load`, `--poisson` and
`--goodput` do not apply. `--agents` or `--users` is how many work at once; `--speed` divides the pauses, which recordings have up to 600 s.

The regime of `vllm-router demo`, whose workers have the engine `demo`:

    vllm-router replay --workload demo --workers 3 --engine demo --cache-tokens 10240 --policy auto cache_aware consistent_hash

## The fleet

Each worker is the [engine model](../explanation/engine_model.md), whose [steps](../explanation/engine_model.md#a-step) take the times below.
`--engine` names a preset of these figures or a YAML file, such as

```yaml
engine: h200_32b
prefill_us_per_token: 40
max_running: 128
cache_tokens: 340000
```

PRESETS
Presets are arithmetic, not measurements.

With `--prefill` and `--decode` the fleet has [two stages](../explanation/engine_model.md#prefill-and-decode-on-different-workers): the
policy chooses the prefill worker, and the decode worker is chosen as the server does without `--decode-policy`. Policies then take
`pd_bypass_uncached_tokens` and `pd_bypass_queued_tokens` (thresholds of the [bypass](../explanation/disaggregation.md#the-bypass)), as in
`auto:pd_bypass_uncached_tokens=0|256|1024`. Of events only wipes may happen, and replicas tell each other nothing.

An event is `T:W`, worker W (counted from 0) at T seconds of the replay. A worker whose first event is `--join` does not exist before.
`--change-speed T:W:X` sets the relative speed of a worker from its next step on.

### Classes and tenants

A line of `mooncake` and `bailian` may have `priority_class` (`interactive`, `default`, `batch`) and `tenant` (a name). With `--admission-config` requests wait in the
router's own queues, [as in the server](../how-to/share_a_fleet.md): until a worker has room for their class, in an order that is fair to tenants. Not with stages, nor with
`--whole-responses`; a capacity is measured without classes, and nothing is evicted.

| figure of each class and tenant | meaning |
|---|---|
| `requests`, `finished`, `rejected` | that came, were served, had no place at the router |
| `ttft_p50_s`, `ttft_p99_s`, `token_ms` | time to first token; without one, infinite; mean time between two tokens |
| `requests_per_s`, `tokens_per_s`, `hit_share` | served; tokens of responses; cached share of prompt tokens |
| `wait_p50_s`, `wait_p99_s`, `queued`, `aged` | time at the router; requests that waited, and that were dispatched as of the class above |

## Programs

With `--program-admission on` each session is a [program](../how-to/share_a_fleet.md#programs): its turns wait at the router while the KV caches have no room for it. A file of
`--admission-config` that has `programs` alone sets how. Classes and programs are not played together. `python -m benchmarks.replay_programs` measures what it is worth.

## Terms

| term | meaning |
|---|---|
| ideal hit share | share of the prompt tokens that one unlimited cache would serve |
| working set | size in tokens of one LRU cache that serves 90 % of all reuse of blocks in order of arrival |
| trace | requests with arrival times, lengths and blocks, without text |
| SLO | 4 times the p90 time to first token at a tenth of the saturating rate, or `--slo` |
| goodput | the highest rate at which a policy's p90 time to first token is within the SLO, bisected to 2 % |
| capacity | the best goodput of a few good policies |
| load | rate / capacity |
| saturated | when the last request arrives, more than 2 % of all, and more than 8 per worker, have no first token yet |
| imbalance | open requests per worker, standard deviation by mean, averaged over arrivals |
| ± | half of the 95 % confidence interval of the mean over seeds, by Student's t |

## What it leaves out

Lost KV events, clients' retries, the network, differences between two steps of one engine; a trace has no text, so options about headers
and bodies have no effect, and policies by prefix digest take the first blocks for the prefix.

## Columns

Of a row of `run()` and of `rows` in `--json`:

| column | meaning |
|---|---|
| `trace`, `policy`, `comparison`, `point`, `by_load`, `seed` | what was played, by which policy, as which point of a sweep |
| `workers`, `prefill`, `decode`, `routers`, `cache_tokens` | the fleet (`prefill` and `decode` are 0 without stages); tokens of cache per worker, with stages of decode |
| `load`, `rate` | fraction of the capacity (null where it was not measured), requests a second; of a closed loop those that came |
| `requests`, `finished`, `refused`, `cut_short`, `rejected` | how requests ended: served, no worker there, worker failed after the first token; queue full, displaced or timed out |
| `hit_share`, `predicted_hit_share`, `ideal_hit_share` | of the prompt tokens: served from caches, expected by the router, possible |
| `ttft_mean_s`, `ttft_p50_s`, `ttft_p90_s`, `ttft_p99_s` | time to first token; without one, infinite |
| `e2e_mean_s`, `e2e_p50_s`, `e2e_p90_s`, `e2e_p99_s` | time to the last token, of the finished |
| `token_ms`, `token_p50_ms`, `token_p99_ms` | time between two tokens of a response (TPOT): its mean over a response, and then the mean and percentiles of the responses |
| `load_imbalance`, `busiest_share`, `busy` | imbalance; share of the requests at the busiest worker; share of the time that workers compute |
| `evicted_blocks`, `output_tokens_per_s`, `span_s` | evicted blocks, response tokens a second, length of the replay |
| `waiting_at_end`, `saturated` | requests without a first token when the last one arrived; whether that is too many |
| `bypass_share`, `transferred_bytes`, `transferred_share` | with stages: share of the requests that decode served alone; what decode workers fetched, in bytes and as a share of all prompt tokens |
| `prefill_busy`, `decode_busy` | with stages: share of the time that workers of each compute |
| `holdout_percent`, `holdout_policy`, `holdout_conversations`, `policy_conversations` | with `--holdout`: what was set, and the sessions of each arm |
| `holdout_cached_share`, `holdout_cached_share_low`, `holdout_cached_share_high` | policy minus held out, of the cached share of a session's prompt tokens, and the ends of its [interval](admin_api.md#hold-out); null below 100 held-out sessions |
| `holdout_ttft_ratio`, `holdout_ttft_ratio_low`, `holdout_ttft_ratio_high` | policy by held out, of times to first token behind a session's first turn, likewise |
| `class_<name>_<figure>`, `tenant_<name>_<figure>` | where the trace has [classes or tenants](#classes-and-tenants) |
| `capacity`, `slo_s`, `within_slo`, `goodput` | where a capacity was measured; goodput as a fraction of it, with `--goodput` |
"""


def render() -> str:
    """The whole page."""
    page = HEAD
    for group in make_parser()._action_groups:
        rows = []
        for action in group._group_actions:
            if action.dest == "help":
                continue
            names = [name for name in action.option_strings if "_" not in name]
            name = ", ".join(f"`{name}`" for name in names) or f"`{action.metavar}`"
            value = f" {action.metavar}" if names and isinstance(action.metavar, str) else ""
            several = " ..." if action.nargs == "+" else ""
            text = (action.help or "").replace("%%", "%")
            rows.append(f"- {name}{value + several}: {text}\n")
        if rows:
            page += f"\n### {group.title}\n\n" + "".join(rows)
    return page + TAIL.replace("PRESETS\n", _presets())


def _presets() -> str:
    presets = _engines.presets()
    names = [name for name in next(iter(presets.values())) if name != "what"]
    table = (
        f"| preset | what | {' | '.join(f'`{name}`' for name in names)} |\n|---|---{'|--:' * len(names)}|\n"
    )
    for preset, values in presets.items():
        table += f"| `{preset}` | {values['what']} | {' | '.join(f'{values[name]:g}' for name in names)} |\n"
    return table + "\n"


if __name__ == "__main__":
    print(render(), end="")
