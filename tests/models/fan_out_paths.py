"""Which paths go to all workers, rule by rule; the twin of cpp/proxy/fan_out_paths.h."""

from __future__ import annotations

import urllib.parse

KNOWN = [
    "/flush_cache",
    "/reset_prefix_cache",
    "/start_profile",
    "/stop_profile",
    "/sleep",
    "/wake_up",
    "/pause",
    "/resume",
    "/update_weights*",
    "/load_lora_adapter",
    "/unload_lora_adapter",
]


def is_fan_out(path: str, more: list[str]) -> bool:
    decoded = urllib.parse.unquote_to_bytes(path)
    names = {decoded}
    if decoded.startswith(b"/v1/"):
        names.add(decoded[3:])
    for pattern in map(str.encode, KNOWN + more):
        for name in names:
            if pattern.endswith(b"*") and name.startswith(pattern[:-1]):
                return True
            if pattern == name:
                return True
    return False
