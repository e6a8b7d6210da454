"""What one engine says, of what two say of log probabilities; the twin of disaggregation/merged_response.h.

By Python's json: a merged response is compared by what it means, so nothing here is spliced.
"""

from __future__ import annotations

import json
import re
from typing import Any

LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
INPUTS = ("input_token_logprobs", "input_top_logprobs", "input_token_ids_logprobs")
REPLACED = {"prompt_logprobs", *LISTS, *INPUTS}
MOST = 2**53


class UnexpectedShapeError(Exception):
    """A response of another shape."""


class Object(dict[str, Any]):
    """Knows which names it had twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.repeated = {name for name in names if names.count(name) > 1}


def _no_constant(spelling: str) -> None:
    raise ValueError(spelling)


def read(text: str) -> Any:
    return json.loads(text, object_pairs_hook=Object, parse_constant=_no_constant)


def value_in(item: Any, name: str) -> Any:
    """None: absent or null."""
    expect(isinstance(item, Object) and name not in item.repeated)
    return item.get(name)


def expect(condition: bool) -> None:
    if not condition:
        raise UnexpectedShapeError


def is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST


def merged(route: str, prefill: str, decode: str) -> Any:
    """None if decode's response stays."""
    try:
        ours, theirs = read(prefill), read(decode)
        if route == "generate":
            if isinstance(ours, list):
                _merge_all(ours, theirs, _merge_generated)
            else:
                _merge_generated(ours, theirs)
            return theirs
        expect(isinstance(ours, Object) and isinstance(theirs, Object))
        if route == "completions":
            _merge_all(value_in(ours, "choices"), value_in(theirs, "choices"), _merge_choice)
        if route == "chat":
            _merge_prompt_logprobs(ours, theirs)
    except (UnexpectedShapeError, ValueError):
        return None
    return theirs


def _merge_all(ours: Any, theirs: Any, merge: Any) -> None:
    expect(isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs))
    for our, their in zip(ours, theirs, strict=True):
        merge(our, their)


def _merge_prompt_logprobs(ours: Any, theirs: Any) -> int | None:
    told = value_in(ours, "prompt_logprobs")
    value_in(theirs, "prompt_logprobs")
    if told is None:
        return None
    expect(isinstance(told, list))
    theirs["prompt_logprobs"] = told
    return len(told)


def _merge_choice(ours: Any, theirs: Any) -> None:
    expect(value_in(ours, "index") == value_in(theirs, "index"))
    prompt = _merge_prompt_logprobs(ours, theirs)
    if prompt is None:
        return
    our, their = value_in(ours, "logprobs"), value_in(theirs, "logprobs")
    if our is None:
        return
    for lists in (our, their):
        columns = [value_in(lists, name) for name in LISTS]
        expect(all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns))
    if len(our["tokens"]) == 1:
        return
    expect(len(our["tokens"]) == prompt + 1 and our["token_logprobs"][0] is None)
    if their["tokens"] and their["token_logprobs"][0] is None:
        expect(their["tokens"][:prompt] == our["tokens"][:prompt])
        for name in LISTS:
            their[name] = our[name][:prompt] + their[name][prompt:]
        return
    shift, offsets = our["text_offset"][-1], their["text_offset"]
    expect(all(is_count(offset) for offset in [shift, *offsets]))
    expect(offsets[:1] in ([], [0]))
    their["text_offset"] = [shift + offset for offset in offsets]
    for name in LISTS:
        their[name] = our[name][:prompt] + their[name]


def _merge_generated(ours: Any, theirs: Any) -> None:
    our, their = value_in(ours, "meta_info"), value_in(theirs, "meta_info")
    if our is None:
        expect(isinstance(theirs, Object))
        return
    expect(isinstance(our, Object) and isinstance(their, Object))
    has_prompt = False
    for name in INPUTS:
        first, then = value_in(our, name), value_in(their, name)
        if first is None:
            continue
        then = [] if then is None else then
        expect(isinstance(first, list) and isinstance(then, list))
        if name == INPUTS[0]:
            has_prompt = bool(then) and len(first) == len(then) and all(map(_same_token, first, then))
        if first:
            their[name] = first + ([] if has_prompt else then)


def _same_token(one: Any, other: Any) -> bool:
    lists = all(isinstance(item, list) and len(item) > 1 for item in (one, other))
    return bool(lists and one[1] == other[1])


def usage_merged(prefill: str, decode: str) -> Any:
    """None if decode's response stays."""
    try:
        response = read(decode)
        ours, theirs = value_in(read(prefill), "usage"), value_in(response, "usage")
        if theirs is None:
            return response
        counts = [value_in(ours, "prompt_tokens"), value_in(theirs, "completion_tokens")]
        our_details = value_in(ours, "prompt_tokens_details")
        details = value_in(theirs, "prompt_tokens_details")
        value_in(theirs, "prompt_tokens")
        value_in(theirs, "total_tokens")
        expect(all(is_count(count) for count in counts))
    except (UnexpectedShapeError, ValueError):
        return None
    theirs["prompt_tokens"], theirs["total_tokens"] = counts[0], sum(counts)
    if not _has_cached_tokens(details) and _has_cached_tokens(our_details):
        theirs["prompt_tokens_details"] = our_details
    return response


def _has_cached_tokens(details: Any) -> bool:
    try:
        return is_count(value_in(details, "cached_tokens"))
    except UnexpectedShapeError:
        return False


def wants_merge(route: str, request: str) -> bool:
    pairs = json.loads(request, object_pairs_hook=list)
    if any(name == "stream" and value is True for name, value in pairs):
        return False
    given = {name for name, value in pairs if value is not None and value is not False}
    echoes = any(name == "echo" and value is True for name, value in pairs)
    if route == "generate":
        return "return_logprob" in given
    echoed = echoes and "logprobs" in given
    return route in ("chat", "completions") and ("prompt_logprobs" in given or echoed)


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|\s+')


def skeleton(text: str, names: set[str] = REPLACED) -> str:
    """… for the values of these members; those that come first and have no blanks are left out."""
    out: list[str] = []
    tokens = iter(_TOKEN.findall(text))
    for token in tokens:
        out.append(token)
        if token == ":" and _name_before(out) in names:
            _skip_value(tokens, out)
    shown, before = "".join(out), ""
    while shown != before:
        before = shown
        for name in names:
            shown = shown.replace(f'{{"{name}":…,', "{").replace(f'{{"{name}":…}}', "{}")
    return shown


def _name_before(out: list[str]) -> Any:
    name = next(token for token in reversed(out[:-1]) if token.strip())
    return json.loads(name)


def _skip_value(tokens: Any, out: list[str]) -> None:
    depth = 0
    for token in tokens:
        if not token.strip():
            if depth == 0:
                out.append(token)
            continue
        depth += (token in "{[") - (token in "}]")
        if depth == 0:
            out.append("…")
            return
