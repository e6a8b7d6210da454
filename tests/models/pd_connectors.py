"""What connectors of disaggregation/kv_connector.h tell a pair of workers, as plain dicts; their slow twin.

And attempts, as the bindings take them, of which everything is known.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from tests.models.pd_plan import NEVER_ALONE, PREFILL_PARAMETERS, is_count

Attempt = dict[str, Any]

CONNECTORS = ("nixl", "nixl_push", "mooncake", "moriio", "p2p_nccl", "sglang", "shared_store")
BITS = (0x0123456789ABCDEF, 0xFEDCBA9876543210)
TX = "tx-0123456789abcdeffedcba9876543210"
P_ZMQ = "host:10.0.0.1,handshake:6301,notify:61005"
D_ZMQ = "host:10.0.0.2,handshake:6302,notify:61006"
ID = f"___prefill_addr_{P_ZMQ}___decode_addr_{D_ZMQ}_" + "0123456789abcdeffedcba9876543210"
PUSH = {"engine_id": "e-push", "host": "10.0.0.1", "port": 5600, "tp_size": 2, "pp_size": None}
PREFILL = {
    "host": "10.0.0.1",
    "port": 8000,
    "bootstrap_port": 8997,
    "engine_id": "e-mooncake",
    "zmq_address": P_ZMQ,
    "tp_size": 8,
    "dp_size": 4,
}
DECODE = {"host": "10.0.0.2", "port": 8001, "zmq_address": D_ZMQ, "tp_size": 16, "dp_size": 2}


def attempt(
    prefill: dict[str, Any] | None = None, decode: dict[str, Any] | None = None, **changes: Any
) -> Attempt:
    """An attempt with some things changed; None removes one."""
    whole = {
        "id": ID,
        "bits": BITS,
        "prefill": PREFILL | (prefill or {}),
        "decode": DECODE | (decode or {}),
        "mode": "READ",
        "rooms": [4611686018427387904],
    } | changes
    return {
        name: {one: value for one, value in told.items() if value is not None}
        if isinstance(told, dict)
        else told
        for name, told in whole.items()
        if told is not None
    }


def xfer(bits: tuple[int, int]) -> str:
    return f"xfer-{uuid.UUID(int=bits[0] << 64 | bits[1], version=4)}"


def order(connector: str, told: Attempt) -> str:
    if connector == "sglang":
        return "sglang"
    pushes = connector in ("nixl", "nixl_push") and "push" in told["prefill"]
    writes = connector == "moriio" and told.get("mode") == "WRITE"
    return "concurrent" if connector == "mooncake" or pushes or writes else "serial"


def is_missing(connector: str, told: Attempt) -> bool:
    prefill, decode = told["prefill"], told["decode"]
    addresses = prefill.get("zmq_address"), decode.get("zmq_address")
    named = all(addresses) and told["id"].startswith(
        "___prefill_addr_{}___decode_addr_{}_".format(*addresses)
    )
    has_sizes = all(size in end for size in ("tp_size", "dp_size") for end in (prefill, decode))
    rank = prefill.get("rank")
    fine = {
        "nixl": "bits" in told or "push" not in prefill,
        "nixl_push": "bits" in told,
        "mooncake": "bits" in told and "engine_id" in prefill,
        "moriio": "mode" in told and "bits" in told and has_sizes and named,
        "p2p_nccl": named,
        "sglang": len(told.get("rooms", [])) == told.get("listed_prompts", 1)
        and (
            rank is None
            or (
                prefill.get("dp_size", 0) > rank
                and all(room % prefill["dp_size"] == rank for room in told["rooms"])
            )
        ),
        "shared_store": True,
    }
    return not fine[connector]


def told_to_prefill(connector: str, told: Attempt) -> dict[str, Any]:
    """Members of the body."""
    if is_missing(connector, told) or connector == "shared_store":
        return {}
    if connector == "sglang":
        return _rooms(told) | _ranks(told, routed_dp_rank="prefill")
    start = {"do_remote_decode": True, "do_remote_prefill": False}
    if connector == "mooncake":
        object_ = start | {"transfer_id": xfer(told["bits"])}
    elif connector == "moriio":
        object_ = start | {"remote_engine_id": None, "remote_block_ids": None, "transfer_id": TX}
        object_ |= {"remote_dp_size": told["decode"]["dp_size"]}
        if told["mode"] == "WRITE":
            object_ |= {"remote_tp_size": told["decode"]["tp_size"]} | _rank(told["decode"])
    else:
        object_ = dict(PREFILL_PARAMETERS)
        if connector == "nixl_push" or (connector == "nixl" and "push" in told["prefill"]):
            object_ |= {"transfer_id": xfer(told["bits"])}
    return {"kv_transfer_params": object_}


def named_in_body(route: str, connector: str, told: Attempt) -> dict[str, Any]:
    """Engines that read addresses in a request's id take it from the body of /v1/responses."""
    reads = route == "responses" and connector in NEVER_ALONE
    return {"request_id": f"resp_{told['id']}"} if reads else {}


def told_to_decode(connector: str, told: Attempt, parameters: dict[str, Any] | None) -> dict[str, Any]:
    """`parameters`: of prefill's response, which are whole."""
    if is_missing(connector, told) or connector == "shared_store":
        return {}
    if connector == "sglang":
        return _rooms(told) | _ranks(told, routed_dp_rank="decode", disagg_prefill_dp_rank="prefill")
    start = {"do_remote_decode": False, "do_remote_prefill": True}
    prefill = told["prefill"]
    if connector == "mooncake":
        return {
            "kv_transfer_params": start
            | {
                "transfer_id": xfer(told["bits"]),
                "remote_bootstrap_addr": f"http://{prefill['host']}:{prefill.get('bootstrap_port', 8998)}",
                "remote_engine_id": prefill["engine_id"],
            }
        }
    sizes = {"remote_dp_size": prefill.get("dp_size"), "remote_tp_size": prefill.get("tp_size")}
    if connector == "moriio" and told["mode"] == "WRITE":
        none = {"remote_engine_id": None, "remote_block_ids": None, "transfer_id": TX}
        return {"kv_transfer_params": start | none | sizes | _rank(prefill)}
    knows_push = "push" in prefill and connector in ("nixl", "nixl_push")
    if parameters is None and not knows_push:
        return {}
    if connector == "moriio":
        assert parameters is not None
        own = {} if parameters.get("transfer_id") else {"transfer_id": TX}
        return {"kv_transfer_params": parameters | sizes | _rank(prefill) | own}
    says_push = parameters is not None and parameters.get("transfer_mode") == "push"
    if knows_push or connector == "nixl_push" or (connector == "nixl" and says_push):
        identity = push_identity(parameters) if parameters is not None else None
        identity = identity or prefill["push"]
        assert identity is not None
        object_ = start | {f"remote_{name}": identity[name] for name in ("engine_id", "host", "port")}
        object_ |= {"tp_size": identity["tp_size"], "remote_request_id": told["id"]}
        if identity["pp_size"]:
            object_ |= {"pp_size": identity["pp_size"]}
        if connector == "nixl_push" or knows_push:
            object_ |= {"transfer_id": xfer(told["bits"])}
        return {"kv_transfer_params": object_}
    return {"kv_transfer_params": parameters}


def _rank(end: dict[str, Any]) -> dict[str, Any]:
    return {"remote_dp_rank": end["rank"]} if "rank" in end else {}


def _ranks(told: Attempt, **names: str) -> dict[str, Any]:
    if not told.get("rank_fields"):
        return {}
    return {name: told[end]["rank"] for name, end in names.items() if "rank" in told[end]}


def _rooms(told: Attempt) -> dict[str, Any]:
    prefill, rooms = told["prefill"], told["rooms"]
    host, port = prefill["host"], prefill.get("bootstrap_port")
    if "listed_prompts" not in told:
        return {"bootstrap_host": host, "bootstrap_port": port, "bootstrap_room": rooms[0]}
    return {
        "bootstrap_host": [host] * len(rooms),
        "bootstrap_port": [port] * len(rooms),
        "bootstrap_room": rooms,
    }


def push_identity(parameters: dict[str, Any]) -> dict[str, Any] | None:
    """Of an object without repeated members."""
    if parameters.get("transfer_mode") not in (None, "push"):
        return None
    texts = [parameters.get(name) for name in ("remote_engine_id", "remote_host")]
    if not all(isinstance(text, str) and 0 < len(text.encode()) <= 256 for text in texts):
        return None
    numbers = {name: parameters.get(name) for name in ("remote_port", "tp_size", "pp_size")}
    for name, number in numbers.items():
        if number is None and name != "remote_port":
            continue
        if not is_count(number, 1) or number > 65535:
            return None
    return {
        "engine_id": texts[0],
        "host": texts[1],
        "port": numbers["remote_port"],
        "tp_size": numbers["tp_size"] or 1,
        "pp_size": numbers["pp_size"],
    }


def mooncake_engines(reply: str) -> dict[int, str] | None:
    try:
        whole = json.loads(reply)
    except ValueError:
        return None
    if not isinstance(whole, dict):
        return None
    engines = {}
    for name, told in whole.items():
        is_rank = name.isascii() and name.isdecimal() and str(int(name)) == name and int(name) < 1024
        engine_id = told.get("engine_id") if isinstance(told, dict) else None
        if is_rank and isinstance(engine_id, str) and 0 < len(engine_id.encode()) <= 256:
            engines[int(name)] = engine_id
    return engines
