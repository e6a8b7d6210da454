"""What the workers of a prefill/decode pair get of a request, by Python's json and dicts; the twin of
cpp/disaggregation/pd_plan.h and transfer_members.h for vLLM's connectors.

Slow and without spans: copies are compared by what they mean.
"""

from __future__ import annotations

import json
from typing import Any

from tests.models.body_map import Pairs, pairs

TRANSFER = ("kv_transfer_params", "ec_transfer_params", "kv_hints")
IDS = ("request_id", "rid")
RANKS = ("data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank")
OF_REQUEST = ("extra_body", "parameters")
OF_SAMPLING = ("vllm_xargs", "extra_args", "sampling_params")
ENDS_BY_LENGTH = ("mooncake", "moriio")  # prefill's copy has no stops
NEVER_ALONE = ("moriio", "p2p_nccl")  # what two workers cannot share is rejected
PREFILL_PARAMETERS = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
NEEDED = ("remote_engine_id", "remote_request_id", "remote_host", "remote_port", "remote_block_ids")
PROMPTS = ("prompt", "text", "input_ids", "token_ids", "prompt_token_ids")
WITH_PROMPT = ("completions", "generate", "extra", "inference_generate")


def is_transfer(name: str) -> bool:
    return name in TRANSFER or name.startswith("bootstrap_")


def without_transfer(members: Pairs, is_staged: bool = True, depth: int = 4) -> tuple[Pairs, int]:
    """The members without those that steer transfers, as pairs in any order, and how many there were.

    Ids and ranks steer, too, but not among arguments of the sampling (`is_staged` is False there).
    """
    gone = (*IDS, *RANKS) if is_staged else ()
    kept = [(name, value) for name, value in members if not is_transfer(name) and name not in gone]
    count = len(members) - len(kept)
    for place in (*OF_REQUEST, *OF_SAMPLING) if depth > 0 else ():
        inner_staged = is_staged and place in OF_REQUEST
        left = [_stripped(value, inner_staged, depth - 1) for name, value in kept if name == place]
        inside = sum(one for _, one in left)
        if inside == 0:
            continue
        count += inside
        kept = [(name, value) for name, value in kept if name != place]
        kept.append((place, left[-1][0]))
    return kept, count


def _stripped(value: Any, is_staged: bool, depth: int) -> tuple[Any, int]:
    """Of an object, or of the objects of a list."""
    if isinstance(value, list):
        left = [_stripped(one, is_staged, depth) if isinstance(one, dict) else (one, 0) for one in value]
        return [one for one, _ in left], sum(count for _, count in left)
    if not isinstance(value, dict):
        return value, 0
    kept, count = without_transfer(list(value.items()), is_staged, depth)
    return dict(kept), count


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def local_reason(route: str, members: Pairs, connector: str = "nixl") -> str:
    """The reason of the first member that has one."""
    if route == "batch_chat":
        return "batch"
    seen = 0
    for name, value in members:
        reason = _reason(route, name, value)
        if reason is None and connector in ENDS_BY_LENGTH:
            reason = _stop_in(route, name, value)
        if reason:
            return reason
        if route == "inference_generate" and name == "sampling_params":
            seen += 1
            if seen > 1:
                return "duplicate"
    return _together(route, members)


def kind(route: str, members: Pairs, connector: str) -> tuple[str, str]:
    """Of a plan, but behind SGLang, and its reason. vLLM's /generate reads no id that names a pair."""
    if route == "generate" and connector in NEVER_ALONE:
        return "rejected", "none"
    reason = local_reason(route, members, connector)
    if reason == "none":
        return "two_stages", reason
    return "rejected" if connector in NEVER_ALONE else "local", reason


def _stop_in(route: str, name: str, value: Any) -> str | None:
    if name == "sampling_params" and route == "inference_generate" and isinstance(value, dict):
        return next((reason for one in value.items() if (reason := _stop(route, *one))), None)
    return _stop(route, name, value)


def _stop(route: str, name: str, value: Any) -> str | None:
    """Where prefill's copy has no stops."""
    if value is None:
        return None
    texts = ("stop", "stop_sequences") if route == "messages" else ("stop",)
    if name == "ignore_eos":
        fine = isinstance(value, bool)
    elif name == "stop_token_ids":
        fine = isinstance(value, list) and all(type(one) is int for one in value)
    elif name in texts:
        is_list = isinstance(value, list) and all(isinstance(one, str) for one in value)
        fine = isinstance(value, str) or is_list
    else:
        fine = True
    return None if fine else "wrong_type"


def _together(route: str, members: Pairs) -> str:
    """What decode's API rejects, and prefill's copy does not show."""
    streams = [value for name, value in members if name == "stream"]
    options = [value for name, value in members if name == "stream_options" and value is not None]
    if options and (not streams or not all(value is True for value in streams)):
        return "wrong_type"
    if not all(isinstance(value, dict) for value in options):
        return "wrong_type"
    logprobs = any(name == "prompt_logprobs" and value is not None for name, value in members)
    if logprobs and any(value is True for value in streams):
        return "wrong_type"
    return "wrong_type" if route == "messages" and dict(members).get("max_tokens") is None else "none"


def is_count(value: Any, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


TEXTS = (
    *("text", "input_text", "output_text", "refusal", "thinking", "tool_use", "tool_result"),
    *("message", "function_call", "function_call_output"),
)
INLINE = ("image_url", "input_audio", "image", "input_image", "video_url")
MEDIA = ("image_url", "audio_url", "video_url", "input_audio", "source")


def media(value: Any, depth: int = 3) -> str | None:
    """Lists whose parts the two workers could see differently."""
    if not isinstance(value, list):
        return None
    return None if depth > 0 and all(is_shared(part, depth) for part in value) else "media"


def is_shared(part: Any, depth: int) -> bool:
    if not isinstance(part, dict):
        return True
    if any(media(part.get(name), depth - 1) for name in ("content", "output")):
        return False
    if "type" not in part:
        return depth == 3 or list(part) == ["text"]
    if part["type"] in TEXTS:
        return True
    places = [value for name, value in part.items() if name in MEDIA]
    inline = bool(places) and "uuid" not in part and all(map(is_inline, places))
    return part["type"] in INLINE and inline


def is_inline(place: Any) -> bool:
    if isinstance(place, str):
        return place.startswith("data:")
    if not isinstance(place, dict):
        return False
    if "url" in place:
        return "data" not in place and isinstance(place["url"], str) and place["url"].startswith("data:")
    return isinstance(place.get("data"), str)


def _reason(route: str, name: str, value: Any) -> str | None:
    if value is None and name != "messages":
        return None
    if name == "stream":
        return None if isinstance(value, bool) else "wrong_type"
    if name == "messages" and route in ("chat", "messages"):
        if not isinstance(value, list) or not value:
            return "wrong_type"
        if isinstance(value[0], list):
            return "batch"
        return media(value) if isinstance(value[0], dict) else "wrong_type"
    if name == "system" and route == "messages":
        return media(value, 2)
    if name == "chat_template":
        return "template"
    if name == "chat_template_kwargs":
        if not isinstance(value, dict):
            return "wrong_type"
        return None if value.get("chat_template") is None else "template"
    if name == "prompt_embeds":
        return "prompt_embeds"
    if name == "sampling_params" and route == "inference_generate":
        if not isinstance(value, dict):
            return "wrong_type"
        reasons = [_sampling(inner, one) for inner, one in value.items() if one is not None]
        return next((reason for reason in reasons if reason), None)
    if name in PROMPTS and route in WITH_PROMPT:
        return _prompt(value)
    if route == "responses":
        if name in ("previous_response_id", "conversation"):
            return "stored_response"
        if name == "background":
            return "background" if value is True else None if value is False else "wrong_type"
        if name == "max_output_tokens":
            return None if is_count(value, 1) else "wrong_type"
        if name == "input":
            return media(value)
        if name == "truncation":
            return None if value == "disabled" else "truncation"
        if name == "tools":
            if not isinstance(value, list):
                return "wrong_type"
            plain = all(isinstance(tool, dict) and tool.get("type") == "function" for tool in value)
            return None if plain else "server_tools"
    if name in ("truncate_prompt_tokens", "pad_prompt_tokens"):
        if not is_number(value):
            return "wrong_type"
        return None if value > 0 else "truncation"
    if name == "max_completion_tokens":
        return None if is_count(value, 1) else "wrong_type"
    return _sampling(name, value)


def _prompt(value: Any) -> str | None:
    if isinstance(value, str):
        return None
    if not isinstance(value, list) or not value:
        return "wrong_type"
    if isinstance(value[0], (list, dict)):
        return "batch"
    if isinstance(value[0], str):
        return None if len(value) == 1 else "batch"
    return None if is_number(value[0]) else "wrong_type"


def _sampling(name: str, value: Any) -> str | None:
    if name in ("n", "best_of"):
        if is_number(value) and value > 1:
            return "several_sequences"
        return None if value == 1 and isinstance(value, int) and not isinstance(value, bool) else "wrong_type"
    if name == "use_beam_search":
        return "beam_search" if value is True else None if value is False else "wrong_type"
    if name in ("max_tokens", "min_tokens"):
        return None if is_count(value, int(name == "max_tokens")) else "wrong_type"
    return None


def prefill_copy(route: str, members: Pairs, connector: str) -> dict[str, Any]:
    """Without what the connector tells. Of several members the last one counts."""
    kept = dict(without_transfer(members)[0])
    if connector == "sglang":
        return kept
    every = {name: [value for other, value in members if other == name] for name, _ in members}
    if route == "inference_generate":
        sampling = kept.get("sampling_params")
        if sampling is None:
            kept["sampling_params"] = {"max_tokens": 1, "min_tokens": 1}
        else:
            kept["sampling_params"] = {**sampling, "max_tokens": 1}
            if is_number(sampling.get("min_tokens")) and sampling["min_tokens"] > 1:
                kept["sampling_params"]["min_tokens"] = 1
    elif route == "responses":
        kept |= {"max_output_tokens": 1, "store": False}
    else:
        kept["max_tokens"] = 1
        if "max_completion_tokens" in kept:
            kept["max_completion_tokens"] = 1
        if any(is_number(value) and value > 1 for value in every.get("min_tokens", [])):
            kept["min_tokens"] = 1
    kept["stream"] = False
    kept.pop("stream_options", None)
    if connector in ENDS_BY_LENGTH:
        place = "sampling_params" if route == "inference_generate" else None
        stops = ("stop", "stop_token_ids", *(["stop_sequences"] if route == "messages" else []))
        inner = kept if place is None else kept[place]
        inner = {name: value for name, value in inner.items() if name not in stops} | {"ignore_eos": True}
        kept = inner if place is None else kept | {place: inner}
    return kept


MAX_LISTED = 4096


def rooms(route: str, members: Pairs) -> tuple[str, int | None]:
    """Behind SGLang: the kind of a plan, and how many prompts the request lists."""
    if any(name == "n" and _is_several(value) for name, value in members):
        return "rejected", None
    if route in ("generate", "extra"):
        for name, value in members:
            if name != "sampling_params":
                continue
            objects = value if isinstance(value, list) else [value]
            if any(isinstance(one, dict) and _is_several(one.get("n")) for one in objects):
                return "rejected", None
    if route not in WITH_PROMPT:
        return "two_stages", None
    names = ("prompt", "text", "input_ids", "input_embeds")
    counts = {_listed(name, value) for name, value in members if name in names and value is not None}
    if len(counts) > 1 or any(count is not None and count > MAX_LISTED for count in counts):
        return "rejected", None
    return "two_stages", next(iter(counts), None)


def _is_several(value: Any) -> bool:
    return value is not None and not isinstance(value, bool) and (not is_number(value) or value > 1)


def _listed(name: str, value: Any) -> int | None:
    if not isinstance(value, list) or not value:
        return None
    first = value[0]
    if name == "input_embeds":
        if not isinstance(first, list) or not first:
            return None
        first = first[0]
    return None if is_number(first) else len(value)


FINISHED = (
    *("length", "stop", "tool_calls"),
    *("max_tokens", "end_turn", "stop_sequence", "tool_use"),
    *("completed", "incomplete"),
)


def hand_over(response: str, connector: str) -> tuple[str, dict[str, Any] | None]:
    """What a prefill worker's response hands over, and the parameters."""
    if connector in ("shared_store", "mooncake", "sglang"):
        return "not_used", None
    try:
        whole = json.loads(response)
    except ValueError:
        return "not_json", None
    if not isinstance(whole, dict):
        return "not_json", None
    found = [value for name, value in pairs(response) if name == "kv_transfer_params"]
    if not found:
        return "absent", None
    if len(found) > 1:
        return "several", None
    parameters = found[0]
    if parameters is None:
        return "null", None
    if not isinstance(parameters, dict) or not is_whole(parameters, connector):
        return "half", None
    end = _end(whole)
    return (end, None) if end else ("whole", parameters)


def is_whole(parameters: dict[str, Any], connector: str) -> bool:
    """Of an object without repeated members."""
    if connector == "p2p_nccl":
        return True
    blocks = parameters.get("remote_block_ids")
    mode = parameters.get("transfer_mode")
    has_engine, has_request, has_host = (
        isinstance(text, str) and text != ""
        for text in map(parameters.get, ("remote_engine_id", "remote_request_id", "remote_host"))
    )
    port = parameters.get("remote_port")
    has_port = is_count(port, 1) and port <= 65535
    pushes = connector == "nixl_push" or (connector == "nixl" and mode == "push")
    if pushes and mode in (None, "push"):
        return has_engine and has_host and has_port
    is_nixl = connector == "nixl"
    return (
        connector != "nixl_push"
        and has_engine
        and (not is_nixl or (has_request and has_host and has_port))
        and isinstance(blocks, list)
        and any(digit in json.dumps(blocks) for digit in "0123456789")
        and all(c in "0123456789[], " for c in json.dumps(blocks))
    )


def _end(response: dict[str, Any]) -> str | None:
    choices = response.get("choices")
    if "choices" in response:
        if choices is None:
            return None
        if not isinstance(choices, list) or not choices:
            return "unfinished"
        if len(choices) > 1:
            return "several"
        if not isinstance(choices[0], dict):
            return "not_json"
        return None if choices[0].get("finish_reason", "stop") in FINISHED else "unfinished"
    fine = response.get("stop_reason", "stop") in FINISHED and response.get("status", "completed") in FINISHED
    return None if fine else "unfinished"
