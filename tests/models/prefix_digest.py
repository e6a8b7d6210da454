"""The slow twin of cpp/routing/prefix_digest.h: json, dictionaries and hashlib."""

import hashlib
import json
import struct

from tests.models.routing_text import COMPARED, PROMPTS, digest, without_billing_header

LEADS = ("system", "developer")
TEXTS = ("text", "input_text", "output_text")


class NoPromptError(Exception):
    """What no engine would take as a prompt."""


def cut(text: bytes, limit: int) -> bytes:
    """At most `limit` bytes, back to the beginning of a character."""
    if len(text) <= limit:
        return text
    end = limit
    while end > 0 and limit - end < 3 and text[end] & 0xC0 == 0x80:
        end -= 1
    return text[: limit if text[end] & 0xC0 == 0x80 else end]


def text_of(content: object) -> str:
    """The text parts of a content, one after the other."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        raise NoPromptError
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            raise NoPromptError
        kind, text = part.get("type"), part.get("text")
        if not isinstance(kind, str | None) or not isinstance(text, str | None):
            raise NoPromptError
        if not kind or kind in TEXTS:
            texts.append(text or "")
    return "".join(texts)


def of_messages(messages: object) -> tuple[str, str]:
    """The texts of the first lead message and of the first other one; empty where there is none."""
    if not isinstance(messages, list):
        raise NoPromptError
    lead = first = None
    for message in messages:
        if lead is not None and (lead or first is not None):
            break
        if not isinstance(message, dict) or not isinstance(message.get("role"), str | None):
            raise NoPromptError
        role = message.get("role")
        if role in LEADS and lead is None:
            lead = text_of(message.get("content"))
        elif role and role not in LEADS and first is None:
            first = text_of(message.get("content"))
    return lead or "", first or ""


def of_prompt(value: object, is_input: bool) -> tuple[str, str | list[int]]:
    """As of_messages(), of a prompt without roles: the first of a list counts."""
    if isinstance(value, str):
        return "", value
    if value and is_input and all(isinstance(item, dict) for item in value):
        return of_messages(value)
    kinds = {type(item) for item in value}
    if len(kinds) > 1 or kinds & {dict, bool, type(None), float}:
        raise NoPromptError
    if not value:
        return "", []
    if kinds == {list}:
        if any(isinstance(item, list | dict) for item in value[0]):
            raise NoPromptError
        return of_prompt(value[0], False)
    return "", value if kinds == {int} else value[0]


def prefix_anchor(body: bytes | str, limit: int = 1024) -> tuple[str, bytes] | None:
    """Tag and bytes, or None when the body has no text and no ids."""
    try:
        members = json.loads(body)
        if not isinstance(members, dict):
            return None
        system = text_of(without_billing_header(members.get("system")))
        system = system or text_of(members.get("instructions"))
        lead, first = "", ""
        if members.get("systemInstruction") is not None:
            system = system or text_of(members["systemInstruction"].get("parts"))
        for name in ("messages", *PROMPTS, "contents"):
            value = members.get(name)
            if name == "messages" and value is not None:
                lead, first = of_messages(value)
                break
            if name == "contents" and isinstance(value, list):
                lead, first = of_messages([{"role": i.get("role"), "content": i.get("parts")} for i in value])
                break
            if name in COMPARED and isinstance(value, list) and value and isinstance(value[0], dict):
                value = value[0]
            if name in COMPARED and isinstance(value, dict):
                first = text_of(value.get("content"))
                break
            if name == "prompt_embeds" and isinstance(value, str | list):
                text = value if isinstance(value, str) else "".join(value[:1])
                first = digest(text) if text else ""
                break
            if isinstance(value, str | list):
                lead, first = of_prompt(value, name == "input")
                break
    except (ValueError, NoPromptError):
        return None
    if system or lead:
        return "S", cut((system or lead).encode(), limit)
    if isinstance(first, list):
        ids = first[: limit // 4]
        if any(not 0 <= i < 2**32 for i in first[: max(1, limit // 4)]):
            return None
        return ("T", struct.pack(f"<{len(ids)}I", *ids)) if first else None
    return ("M", cut(first.encode(), limit)) if first else None


def prefix_digest(model: str, anchor: tuple[str, bytes]) -> bytes:
    """SHA-256 of the model, a zero byte, the tag and the bytes."""
    tag, content = anchor
    return hashlib.sha256(model.encode() + b"\0" + tag.encode() + content).digest()
