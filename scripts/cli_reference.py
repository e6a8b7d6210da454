"""Writes docs/reference/cli.md from RouterArgs: python scripts/cli_reference.py > docs/reference/cli.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from vllm_router._messages import show
from vllm_router.launch_router import COMMANDS
from vllm_router.router_args import FLAGS
from vllm_router.settings.flag import LIVE, Flag
from vllm_router.settings.foreign_flags import KNOWN_ELSEWHERE
from vllm_router.settings.kinds import Choice, Number, NumberOr, Raw, Switch, Text, Words

HEAD = """\
# Command line

    vllm-router [--worker-urls URL ...] [--policy NAME] [--port PORT] [flags]
    vllm-router demo [flags]
    vllm-router replay TRACE [flags]
    vllm-router simulate-worker [flags]
    vllm-router completion bash
    vllm-router doctor [--json] [flags]
    vllm-router probe [--url URL]
    vllm-router status [URL]

Every flag is listed here once; `scripts/cli_reference.py` writes this page.

## Conventions

- `--max-payload-size` may be written `--max_payload_size`, with its value after a blank or after `=`.
- A line below has a flag's names, `=` its default if it has one, its values in brackets, and its meaning.
  Where it ends with `…`, the flag's own help (`vllm-router --help port`) says more, mostly when to change it.
- A list takes several values after one flag, and the flag may be repeated: `--worker-urls http://a:8000
  http://b:8000`. Lists of URLs and of headers may also be separated by commas. A single value that is
  repeated keeps the last.
- A switch is turned on by the flag alone. Where a file may have turned it on, `--no-…` turns it off.
- Durations are in seconds and may have a fraction, such as `0.5`. None may be longer than a year.
- A range such as `1 to 9` takes whole numbers, `number 1 to 9` fractions too.
- Flags are not abbreviated. An unknown one is rejected with the nearest known one.
- A flag marked *deprecated* is a former name, which works until the next minor release.
- In Python and YAML a setting has the same name with `_`: `max_payload_size`. Three differ in Python:
  `--prefill` is `prefill_urls`, `--decode` is `decode_urls` and `--wasm-middleware-route` is
  `wasm_middleware_routes`.

| exit status | meaning |
|---|---|
| 0 | served, and ended cleanly |
| 1 | could not start, for example because the port is in use |
| 2 | a mistake on the command line or in the file; nothing was started |
| 3 | stopped, but the grace period ended before every request did; those left were cut |

## A file of settings

`--config FILE` reads the same names from YAML, with `-` or `_`; the command line overrides it. An unknown
name ends the command, as on the command line.

```yaml
worker_urls: [http://gpu-0:8000, http://gpu-1:8000]
policy: consistent_hash
port: 8080
stream_idle_timeout_secs: 120
```

[A change of the file](../how-to/change_settings.md) can be put in force while requests run. Each section
says what one of its settings needs, and one with another need has it in the brackets, behind its values:

CHANGES
## The command itself

| flag | meaning |
|---|---|
| `--help`, `-h` | show the usual flags; `--help all`: all; `--help GROUP`: its own; `--help port`: one |
| `--version`, `-V` | show the version |
| `--config` | read settings from the YAML file named after it |
"""

NO_EFFECT = """
## Accepted without effect

Scripts written for vllm-project/router use these. Each is accepted because it sets what happens anyway, or
no longer means anything.

| flag | why nothing happens |
|---|---|
"""

NOT_BUILT = """
## Not implemented yet

These flags of vllm-project/router, and a few of our own, are known, but their functions are not implemented
yet. Each is accepted at its default; any other value ends the command with an error that says so and what
happens today. None is silently ignored.

| function | what happens today | flags, each with its default |
|---|---|---|
"""

ELSEWHERE = """
## Flags of other routers

NUMBER flags of smg, sglang-router, production-stack, Dynamo and others are known by name: the error names the
flag to use here, or says why none is needed, such as `vllm-router --kv-block-size 16`.
"""

ENVIRONMENT = """
## Environment

`API_KEY_VALIDATION_URLS`: URLs with commas between them, which stand in for `--api-key-validation-urls`
where that is not given. If the environment does not have it, the command takes it from the nearest file
`.env` of the working directory or of one above it, and the log says so. No other variable is read from there.

`VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S`: seconds, which stand in for `--session-ttl-secs` where that is not
given or has its default.
"""


def render() -> str:
    """The whole page."""
    flags = [flag for flag in FLAGS.values() if flag.on_command_line]
    built = [flag for flag in flags if not flag.not_built and not flag.no_effect]
    changes = _table((f"`{live}`", f"{what}") for live, what in LIVE.items())
    page = HEAD.replace("CHANGES\n", f"| change | what it needs |\n|---|---|\n{changes}\n")
    for group in dict.fromkeys(flag.group for flag in built):
        page += _section(group, [flag for flag in built if flag.group == group])
    page += NO_EFFECT + _table((_names(flag), flag.no_effect) for flag in flags if flag.no_effect)
    functions = dict.fromkeys(flag.not_built for flag in flags if flag.not_built)
    page += NOT_BUILT + _table(
        (
            missing.function,
            missing.today,
            " · ".join(_with_default(flag) for flag in flags if flag.not_built == missing),
        )
        for missing in functions
    )
    page += ELSEWHERE.replace("NUMBER", str(len(KNOWN_ELSEWHERE))) + ENVIRONMENT
    commands = ", ".join(_code(f"vllm-router {name} --help") for name in COMMANDS)
    return page + f"\nThe commands' own flags are shown by {commands}.\n"


def _section(group: str, flags: list[Flag]) -> str:
    """The lists of a group: first what belongs to no policy, then one for each set of policies."""
    (live, _), *_ = Counter(flag.live for flag in flags).most_common()
    page = f"\n## {group}\n\nChange: `{live}`.\n"
    for policies in sorted(dict.fromkeys(flag.policies for flag in flags), key=bool):
        if policies:
            page += f"\n### Read by {', '.join(policies)}\n"
        page += "\n" + "".join(_built_row(flag, live) for flag in flags if flag.policies == policies)
    return page


def _table(rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in rows)


def _code(flag: str) -> str:
    return f"`{flag.replace('_', '-')}`"


def _names(flag: Flag) -> str:
    former = [alias.name for alias in flag.former_names]
    also = [_code(f"--{name}") for name in flag.spellings[1:] if name.replace("-", "_") not in former]
    if flag.can_be_denied:
        also.append(_code(f"--no-{flag.spelling[2:]}"))
        former += [f"no-{name}" for name in former]
    also += [_code(f"--{name}") + " (deprecated)" for name in former]
    return ", ".join([_code(flag.spelling), *also])


def _value(flag: Flag) -> str:
    match flag.kind:
        case Switch():
            return "switch"
        case Choice() if {"auto", "round_robin"} <= set(flag.kind.names):
            return "a [policy](policies.md#names)"
        case Choice():
            return ", ".join(f"`{name}`" for name in flag.kind.names)
        case Number(seconds=True):
            return f"seconds; 0: {flag.kind.zero}" if flag.kind.zero else "seconds"
        case Number():
            word = f"{flag.kind.word}, " if isinstance(flag.kind, NumberOr) else ""
            zero = f"0 ({flag.kind.zero}), " if flag.kind.zero else ""
            number = "" if flag.kind.whole else "number "
            high = "" if flag.kind.high is None else f" to {flag.kind.high}"
            return f"{word}{zero}{number}{flag.kind.low if high else f'from {flag.kind.low}'}{high}"
        case Words() | Raw():
            return f"list of {flag.kind.metavar}"
        case Text():
            return flag.kind.metavar
    raise AssertionError(flag.kind)


def _default(flag: Flag) -> str:
    default = flag.command_default
    if isinstance(default, bool):
        return "on" if default else "off"
    if default is None or default in ([], {}):
        return "–"
    return f"`{' '.join(default) if isinstance(default, list) else show(default)}`"


def _said_of_values(flag: Flag) -> str:
    """The sentences of a help that say what a value means or which page explains the flag."""
    values = ["Unset", "0", "1", *(flag.kind.names if isinstance(flag.kind, Choice) else ())]
    sentences = re.split(r"(?<=\.) ", flag.more) if flag.more else []
    said = []
    for sentence in sentences:
        if re.match(rf"({'|'.join(map(re.escape, values))})\b", sentence):
            said.append(sentence)
        elif page := re.fullmatch(r"See docs/(.+/(.+)\.md)\.", sentence):
            said.append(f"[{page[2].replace('_', ' ').capitalize()}](../{page[1]}).")
    if len(said) < len(sentences):
        said.append("…")
    return " ".join(said)


def _built_row(flag: Flag, live: str) -> str:
    meaning = f"{flag.what}. {_said_of_values(flag)}".strip()
    if flag.default != flag.command_default:
        meaning += f" In Python the default is {show(flag.default)}."
    default = "" if _default(flag) == "–" else f" = {_default(flag)}"
    change = "" if flag.live == live else f", `{flag.live}`"
    return f"- {_names(flag)}{default} ({_value(flag)}{change}): {meaning}\n"


def _with_default(flag: Flag) -> str:
    default = "unset" if _default(flag) == "–" else _default(flag)
    return f"{_names(flag)} {default}"


if __name__ == "__main__":
    print(render(), end="")
