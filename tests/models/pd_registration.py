"""What a registration of a prefill/decode worker says, by the msgpack library; the twin of
cpp/disaggregation/pd_registration.h for addresses that the caller knows.
"""

from __future__ import annotations

from typing import Any


def decode(
    told: dict[str, Any], http: dict[str, str | None], zmq: dict[str, bool]
) -> tuple[str, dict[str, Any] | None]:
    """`http`: what an address is normalized to, None for a bad one. `zmq`: whether one is good."""
    malformed = ("malformed", None)
    texts = {name: told.get(name) for name in ("type", "http_address", "zmq_address", "transfer_mode")}
    if not all(text is None or isinstance(text, str) for text in texts.values()):
        return malformed
    sizes = {name: 1 if told.get(name) is None else told[name] for name in ("tp_size", "dp_size")}
    if not all(type(size) is int and 1 <= size <= 4096 for size in sizes.values()):
        return malformed
    if texts["type"] is None:
        return malformed
    if texts["type"] not in ("P", "D"):
        return "ignored", None
    address = http.get(texts["http_address"] or "")
    if address is None or not zmq.get(texts["zmq_address"] or ""):
        return malformed
    if texts["transfer_mode"] not in (None, "READ", "WRITE"):
        return malformed
    return "registration", {
        "role": "prefill" if texts["type"] == "P" else "decode",
        "http_address": address,
        "zmq_address": texts["zmq_address"],
        "mode": texts["transfer_mode"],
        **sizes,
    }
