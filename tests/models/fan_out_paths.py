"""Which paths go to all workers, rule by rule; the twin of cpp/proxy/api/fan_out_paths.h."""

from __future__ import annotations

import re
import urllib.parse

KNOWN = [
    "/flush_cache",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/start_profile",
    "/stop_profile",
    "/sleep",
    "/wake_up",
    "/pause",
    "/resume",
    "/pause_generation",
    "/continue_generation",
    "/release_memory_occupation",
    "/resume_memory_occupation",
    "/release_kv_cache_memory",
    "/abort_requests",
    "/inference/v1/abort_requests",
    "/update_weights*",
    "/init_weights_update_group",
    "/destroy_weights_update_group",
    "/init_weight_transfer_engine",
    "/shutdown_weight_transfer_engine",
    "/start_weight_update",
    "/start_draft_weight_update",
    "/finish_weight_update",
    "/update_weight_version",
    "/weight_checker",
    "/load_lora_adapter",
    "/unload_lora_adapter",
    "/collective_rpc",
]


def resembles(path: str, more: list[str]) -> bool:
    decoded = urllib.parse.unquote(path, errors="surrogateescape")
    segments: list[str] = []
    for segment in re.split("[;?#]", decoded)[0].split("/"):
        if segment == "..":
            segments = segments[:-1]
        elif segment not in ("", "."):
            segments.append(segment)
    normal = "".join("/" + segment for segment in segments)
    plain = urllib.parse.quote(normal, safe="/;?#*")
    return normal != path and (normal == "/metrics" or is_fan_out(plain, more))


def is_fan_out(path: str, more: list[str], method: str = "POST") -> bool:
    # GET and HEAD of a path that is added go to one worker, unless it is added as "GET /path".
    if method in ("GET", "HEAD"):
        more = [entry.removeprefix("GET ") for entry in more if entry.startswith("GET ")]
    more = [entry.removeprefix("GET ") for entry in more]
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
