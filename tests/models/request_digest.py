"""Slow twin of response_cache/request_digest.h, from its formulas."""

import hashlib
import struct


def framed(text):
    return struct.pack("<Q", len(text)) + text


def digest_request(path, query, tenant, generation, members):
    """`members`: (name, value) in bytes; `tenant`: 32 bytes or None."""
    who = b"\x00" if tenant is None else b"\x01" + tenant
    text = b"vllm-router/response-cache/1\x00" + framed(path) + framed(query) + framed(who)
    text += framed(struct.pack("<Q", generation)) + struct.pack("<I", len(members))
    for name, value in sorted(members):
        text += framed(name) + framed(value)
    return hashlib.sha256(text).digest()


def digest_five_parameters(model, messages, temperature, max_tokens, top_p, tenant):
    def tagged(value, form):
        return b"\x00" if value is None else b"\x01" + (value if form is None else struct.pack(form, value))

    parts = [
        model,
        hashlib.sha256(messages).digest(),
        b"" if temperature is None else struct.pack("<d", temperature),
        tagged(max_tokens, "<Q"),
        tagged(top_p, "<d"),
        tagged(tenant, None),
    ]
    return hashlib.sha256(b"\x00".join(parts)).digest()


def tenant_of(kind, value):
    return hashlib.sha256(kind + b"\x00" + value).digest()
