"""The routing text of a request body by the grammar of cpp/routing/routing_text.h, with json and dicts."""

import json
from typing import Any

import xxhash

RS, US, GS = "\x1e", "\x1f", "\x1d"
CONTEXT = ("cache_salt", "chat_template", "chat_template_kwargs", "documents", "reasoning_effort")
MEDIA = {
    "image": ("image_url", "input_image", "image"),
    "video": ("video_url", "input_video", "video"),
    "audio": ("audio_url", "input_audio", "audio"),
    "file": ("file", "input_file", "document"),
}
SOURCES = ("image_url", "video_url", "audio_url", "file_url", "source", "input_audio", "file", "file_id")
TEXT = ("text", "input_text", "output_text", "summary_text", "reasoning_text")


def without_billing_header(system: Any) -> Any:
    """Claude Code's block that says who pays, which engines drop."""
    if not isinstance(system, list):
        return system

    def is_dropped(block: Any) -> bool:
        text = block.get("text") if isinstance(block, dict) else None
        is_text = isinstance(text, str) and block.get("type") in (None, "", *TEXT)
        return is_text and text.startswith("x-anthropic-billing-header:")

    return [block for block in system if not is_dropped(block)]


def compact(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def digest(data: str) -> str:
    return "xxh3:" + xxhash.xxh3_128_hexdigest(data.encode())


def of_url(url: str) -> str:
    if not url.startswith("data:"):
        return url
    return digest(url.partition(",")[2] if "," in url else url)


def of_media(part: dict[str, Any]) -> str:
    """The first there is of uuid, inline data, URL and file id, in the part or in the objects in it."""
    found = {"uuid": [part.get("uuid")], "data": [part.get("file_data")], "url": [], "file_id": []}
    for member in SOURCES:
        source = part.get(member)
        if isinstance(source, str):
            found["file_id" if member == "file_id" else "url"].append(source)
        elif source is not None:
            found["uuid"].append(source.get("uuid"))
            found["data"] += [source.get("data"), source.get("file_data")]
            found["url"].append(source.get("url"))
            found["file_id"].append(source.get("file_id"))
    for kind, values in found.items():
        for value in filter(None, values):
            if kind == "uuid":
                return str(value)
            return digest(value) if kind == "data" and not value.startswith("data:") else of_url(value)
    return ""


def gemini_part_of(part: dict[str, Any]) -> str | None:
    call = part.get("functionCall")
    if call is not None:
        return f"{GS}call:{call.get('name') or ''}:{compact(call.get('args', ''))}"
    for source in (part.get("inlineData"), part.get("fileData")):
        if source is None:
            continue
        found = digest(source["data"]) if source.get("data") else source.get("fileUri") or ""
        tag = (source.get("mimeType") or "").partition("/")[0]
        if found:
            return f"{GS}{tag if tag in ('image', 'video', 'audio') else 'file'}:{found}"
    return None


def part_of(part: Any) -> list[str]:
    """The parts that it becomes, each with its separator."""
    if isinstance(part, str):
        return [US + part]
    kind = part.get("type") or ""
    if kind in TEXT or (not kind and "text" in part):
        return [US + (part.get("text") or "")]
    gemini = gemini_part_of(part)
    if gemini is not None:
        return [gemini]
    for tag, kinds in MEDIA.items():
        if kind in kinds:
            return [f"{GS}{tag}:{of_media(part)}"]
    if kind in ("tool_use", "server_tool_use"):
        return [f"{GS}call:{part.get('name') or ''}:{compact(part.get('input', ''))}"]
    if kind == "tool_result":
        return [tagged("result", part.get("content") or [])]
    if kind in ("thinking", "reasoning"):
        return [f"{GS}reasoning:{part.get('thinking') or part.get('text') or ''}"]
    return [f"{GS}other:{compact(part)}"]


def content_of(content: Any) -> list[str]:
    if content is None:
        return []
    if isinstance(content, str):
        return [US + content]
    return [one for part in content for one in part_of(part)]


def tagged(tag: str, content: Any) -> str:
    parts = content_of(content)
    texts = "".join(part[1:] for part in parts if part[0] == US)
    return f"{GS}{tag}:{texts}" + "".join(part for part in parts if part[0] == GS)


def call_of(call: dict[str, Any]) -> str:
    function = call.get("function") or call.get("custom") or call
    arguments = compact(function.get("arguments", function.get("input", "")))
    return f"{GS}call:{function.get('name') or ''}:{arguments}"


def item_of(message: dict[str, Any]) -> tuple[str, str]:
    """Its role, and the item."""
    kind, role, name = (message.get(member) or "" for member in ("type", "role", "name"))
    reasoning = "".join(
        tagged("reasoning", message[member])
        for member in message
        if member in ("reasoning_content", "reasoning", "summary") and message[member] is not None
    )
    content = "".join(content_of(message.get("content")))
    calls = "".join(call_of(call) for call in message.get("tool_calls") or [])
    if message.get("function_call"):
        calls += call_of(message["function_call"])
    if kind == "function_call":
        role, calls, name = (
            "assistant",
            calls + f"{GS}call:{name}:{compact(message.get('arguments', ''))}",
            "",
        )
    elif kind == "function_call_output":
        role, content = "tool", tagged("result", message.get("output") or "")
    elif kind == "reasoning":
        role = "assistant"
    elif kind and kind != "message" and not role:
        return role, f"{RS}{':' + name if name else ''}{GS}other:{compact(message)}"
    return role, f"{RS}{role}{':' + name if name else ''}{reasoning}{content}{calls}"


PROMPTS = (
    *("input", "prompt", "text", "input_ids", "token_ids", "prompt_token_ids"),
    *("query", "queries", "text_1", "data_1", "prompt_embeds"),
)
COMPARED = ("query", "queries", "text_1", "data_1")


def first_of(prompt: list[Any]) -> Any:
    if prompt and isinstance(prompt[0], list):
        return list(prompt[0])
    if prompt and isinstance(prompt[0], str):
        return prompt[0]
    return list(prompt) or ""


def is_models(message: dict[str, Any], role: str) -> bool:
    """Whether the model, or a tool that it called, said it."""
    return role not in ("system", "developer", "user") and bool(role or message.get("type"))


def routing_text(
    body: dict[str, Any], path: str = "", opening: bool = False, tools_first: bool = False
) -> bytes | list[int] | None:
    """Bytes of a text, a list of token ids, or None when there is no prompt.

    The opening of a conversation is what precedes the model's first item; None when the user says nothing
    before that, and of prompts that are no conversation.
    """
    messages = body.get("messages")
    given = body.get("input")
    if messages is None and isinstance(given, list) and given and isinstance(given[0], dict):
        messages = given
    responses = path.endswith("/responses") or (not path and body.get("instructions") is not None)
    if messages is None and isinstance(given, str) and responses:
        messages = [{"role": "user", "content": given}]
    if messages is None:
        for member in PROMPTS:
            value = body.get(member)
            if member in COMPARED:
                if isinstance(value, list) and value and isinstance(value[0], dict):
                    value = value[0]
                if isinstance(value, dict):
                    return None if opening else "".join(content_of(value.get("content"))).encode()
            if isinstance(value, list):
                value = first_of(value)
            if opening and isinstance(value, str | list):
                return None
            if isinstance(value, str):
                return (
                    f"{GS}embeds:{digest(value)}" if member == "prompt_embeds" and value else value
                ).encode()
            if isinstance(value, list):
                return value
    if messages is None and isinstance(body.get("contents"), list):
        messages = [{"role": item.get("role"), "content": item.get("parts")} for item in body["contents"]]
    if messages is None:
        return None

    items = [item_of(message) for message in messages]
    if opening:
        own = [is_models(message, role) for message, (role, _) in zip(messages, items, strict=True)]
        items = items[: own.index(True) if True in own else len(own)]
        if all(role in ("system", "developer") for role, _ in items):
            return None
    lead = 0
    while lead < len(items) and items[lead][0] in ("system", "developer"):
        lead += 1
    context = "".join(f"{US}{name}={compact(body[name])}" for name in CONTEXT if body.get(name) is not None)
    text = f"{RS}context{context}" if context else ""
    tools = f"{RS}tools{US}{compact(body['tools'])}" if body.get("tools") else ""
    if tools_first:
        text += tools
    system = without_billing_header(body.get("system"))
    if system is None:
        system = body.get("instructions")
    if body.get("systemInstruction") is not None:
        system = body["systemInstruction"].get("parts") or []
    if system is not None:
        text += f"{RS}system" + "".join(content_of(system))
    text += "".join(item for _, item in items[:lead])
    if not tools_first:
        text += tools
    return (text + "".join(item for _, item in items[lead:])).encode()
