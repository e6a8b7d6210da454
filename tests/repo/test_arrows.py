"""Which room may include which: the table of the architecture, held against #include lines and CMake."""

import re
from pathlib import Path

from tests.repo.rules import none_of

ROOT = Path(__file__).parents[2]
CPP = ROOT / "cpp"

# A room may include itself, its row, and what those rows may include.
ROWS = {
    "base": set(),
    "hashing": {"base"},
    "worker": {"base"},
    "admission": {"hashing", "worker"},
    "http": {"base"},
    "net": {"base"},
    "grpc": {"base"},
    "picker": {"base"},
    "index": {"hashing", "worker"},
    "redis": {"net"},
    "policy": {"index"},
    "shared_pool": {"index"},
    "tracing": {"worker"},
    "events": {"index", "http", "net"},
    "peer_sync": {"policy"},
    "routing": {"policy"},
    "response_cache": {"routing"},
    "receipts": {"policy"},
    "sessions": {"policy", "routing"},
    "holdout": {"policy"},
    "conditions": {"worker"},
    "continuation": {"routing", "http"},
    "disaggregation": {"routing", "events"},
    "proxy/api": {"response_cache", "disaggregation", "http"},
    "proxy/telemetry": {"proxy/api", "routing", "tracing"},
    "proxy/client": {"proxy/telemetry", "events", "redis"},
    "proxy/security": {"proxy/client", "admission"},
    "proxy/thread": {"proxy/security"},
    "proxy/control": {"proxy/thread"},
    "proxy/exchange": {"proxy/thread"},
    "proxy/admin": {"proxy/control", "peer_sync"},
    "proxy/admission": {"proxy/exchange", "proxy/admin", "admission"},
    "proxy/disaggregation": {"proxy/exchange", "proxy/admin", "disaggregation"},
    "proxy/events": {"proxy/exchange", "proxy/admin", "events"},
    "proxy/peer_sync": {"proxy/exchange", "proxy/admin", "peer_sync"},
    "proxy/receipts": {"proxy/exchange", "proxy/admin", "receipts"},
    "proxy/response_cache": {"proxy/exchange", "proxy/admin", "response_cache"},
    "proxy/sessions": {"proxy/exchange", "proxy/admin", "sessions"},
    "proxy/conditions": {"proxy/exchange", "proxy/admin", "conditions"},
    "proxy/shared_pool": {"proxy/exchange", "proxy/admin", "shared_pool"},
    "proxy/tracing": {"proxy/exchange", "proxy/admin", "tracing"},
    "proxy/holdout": {"proxy/exchange", "proxy/admin", "holdout"},
    "proxy/continuation": {"proxy/exchange", "proxy/admin", "continuation"},
    "proxy/picker": {"proxy/exchange", "proxy/admin", "grpc", "picker"},
    "proxy/dashboard": {"proxy/admin", "conditions", "receipts"},
    "proxy/steps": {
        "proxy/exchange",
        "proxy/admission",
        "proxy/disaggregation",
        "proxy/events",
        "proxy/receipts",
        "proxy/response_cache",
        "proxy/sessions",
        "proxy/conditions",
        "proxy/shared_pool",
        "proxy/tracing",
        "proxy/holdout",
        "proxy/continuation",
        "proxy/picker",
    },
    "proxy/server": {"proxy/steps", "proxy/peer_sync", "proxy/dashboard"},
    "simulation": {"routing", "admission", "peer_sync", "holdout", "http", "net"},
}
ROWS["bindings"] = set(ROWS)

# Rooms of features: they include layers, and only what registers them includes them.
FEATURES = {
    "proxy/admission",
    "proxy/disaggregation",
    "proxy/events",
    "proxy/peer_sync",
    "proxy/receipts",
    "proxy/response_cache",
    "proxy/sessions",
    "proxy/conditions",
    "proxy/shared_pool",
    "proxy/tracing",
    "proxy/holdout",
    "proxy/continuation",
    "proxy/dashboard",
    "proxy/picker",
}

# Headers that cost seconds each time they are compiled, and the few sources that may include them. No header
# of ours does, so whoever includes ours never pays; bindings/ is about pybind11 and speaks it throughout.
HEAVY = {
    "boost/asio": "net/*.cc",
    "boost/beast": "nowhere",  # it is what fuzz targets compare with
    "boost/json": "{base/boost_json,events/sse_event,admin/admin,admin/*_endpoints,admin/discovery_report,"
    "admission/admission_endpoints,"
    "admin/admin_context,admin/fleet_call,admin/replies,admin/scale_reply,api/json_text,client/*_report,"
    "conditions/condition_report,conditions/conditions_feature,dashboard/dashboard_events,dashboard/dashboard_feature,events/*_endpoints,events/kv_push_call,exchange/cost_override_header,exchange/fan_out,"
    "holdout/holdout_feature,disaggregation/disaggregation_feature,disaggregation/registration_report,"
    "peer_sync/peer_endpoints,response_cache/cache_report,sessions/sessions_feature,shared_pool/pool_report,"
    "shared_pool/shared_pool_feature}.cc",
    "hiredis": "redis/{redis_command,redis_reply,resp_reader}.cc",
    "nghttp2": "grpc/grpc_connection.cc",
    "openssl": "{net/*,hashing/aead,hashing/keyed_hash,hashing/sha256,simulation/websocket_frames}.cc",
    "prometheus": "proxy/telemetry/metrics_page.cc",
    "pybind11": "bindings/*",
    "simdjson": "{events/trtllm_event.cc,routing/json_reading.h,disaggregation/merged_response.cc,"
    "simulation/conversation_store.cc,simulation/request_body.cc,simulation/responses_session.cc,"
    "simulation/tool_script.cc,simulation/transfer_params.cc}",
    "zmq": "net/zmq_socket.cc",
}

SOURCES = sorted(path for path in CPP.rglob("*") if path.suffix in (".h", ".cc"))
ROOMS = sorted({str(path.parent.relative_to(CPP)) for path in SOURCES})
INCLUDED_ROOM = r'"((?:proxy/)?\w+)/\w+\.h"'


def reach(room):
    """The rooms that `room` may include, itself among them."""
    return {room}.union(*(reach(next_room) for next_room in ROWS[room]))


def includes(source, pattern):
    return re.findall(rf"^\s*#\s*include\s+{pattern}", source.read_text(), re.MULTILINE)


def declared(room):
    """The rooms that the room's CMakeLists.txt links; CMake writes proxy_api for proxy/api."""
    text = (CPP / room / "CMakeLists.txt").read_text()
    (call,) = re.findall(rf"router_room\({room.replace('/', '_')}\b(.*?)\)", text, re.DOTALL)
    rooms = re.search(r"\bROOMS\b([^A-Z]*)", call)
    return {name.replace("proxy_", "proxy/") for name in rooms[1].split()} if rooms else set()


def matches(path, pattern):
    """Path.match, with {a,b} for alternatives."""
    before, braces, rest = pattern.partition("{")
    if not braces:
        return path.match(pattern)
    choices, _, after = rest.partition("}")
    return any(path.match(before + choice + after) for choice in choices.split(","))


def test_every_folder_is_a_room_of_the_table():
    none_of(
        set(ROOMS) - set(ROWS), "give these folders a row in ROWS and in docs/explanation/architecture.md"
    )


def test_every_room_is_built():
    for folder in (CPP, CPP / "proxy"):
        built = re.search(r"foreach\(room (.*?)\)", (folder / "CMakeLists.txt").read_text())[1].split()
        assert sorted(built) == sorted(file.parent.name for file in folder.glob("*/CMakeLists.txt"))


def test_the_arrows_have_no_circle():
    for room in ROWS:
        for next_room in ROWS[room]:
            assert room not in reach(next_room), f"a circle: {room} and {next_room} reach each other"


def test_a_feature_reaches_no_other_and_no_layer_reaches_one():
    assert set(ROWS) >= FEATURES
    for room in set(ROWS) - {"proxy/steps", "proxy/server", "bindings"}:
        assert not reach(room) & FEATURES - {room}, (
            f"{room} reaches a feature: let the feature register itself"
        )


def test_all_of_proxy_is_in_its_rooms():
    none_of(
        list((CPP / "proxy").glob("*.h")) + list((CPP / "proxy").glob("*.cc")),
        "move these into a room of proxy/",
    )


def test_a_room_includes_only_what_its_row_allows():
    wrong = [
        f"{source.relative_to(CPP)} includes {target}/"
        for room in ROOMS
        for source in sorted((CPP / room).iterdir())
        if source in SOURCES
        for target in includes(source, INCLUDED_ROOM)
        if target not in reach(room)
    ]
    none_of(wrong, "a room includes its row alone: turn the dependency round, or move what is shared down")


def test_a_room_links_what_it_includes_and_no_more_than_its_row():
    wrong = []
    for room in ROOMS:
        if room == "bindings":
            continue
        wrong += [
            f"{room} links {target}" for target in declared(room) - reach(room) | declared(room) & {room}
        ]
        linked = {room}.union(*(reach(next_room) for next_room in declared(room)))
        included = {target for file in (CPP / room).glob("*.*") for target in includes(file, INCLUDED_ROOM)}
        wrong += [f"{room} includes {target} without linking it" for target in included - linked]
    none_of(wrong, "ROOMS in the room's CMakeLists.txt names what it includes, and nothing else")


def test_our_includes_name_the_room_and_exist():
    wrong = [
        f"{source.relative_to(CPP)} includes {name}"
        for source in SOURCES
        for name in includes(source, '"([^"]+)"')
        if not (CPP / name).is_file()
    ]
    none_of(wrong, 'write the include as "room/file.h", of a file that exists')


def test_heavy_headers_stay_in_few_sources():
    wrong = [
        f"{source.relative_to(CPP)} includes {name}"
        for source in SOURCES
        for name in includes(source, "<([^>]+)>")
        for heavy, allowed in HEAVY.items()
        if name.startswith(heavy) and not matches(source.relative_to(CPP), allowed)
    ]
    none_of(wrong, "hide these headers behind a header of ours, or extend HEAVY")


def test_no_name_stands_for_two_types():
    # Two types of one name in two headers are one type to the linker, which keeps the functions of either.
    definition = re.compile(
        r"^(?:class|struct|union)(?: alignas\([^)]*\))? (\w+)(?: final)?(?: :[^;{]*)? \{", re.MULTILINE
    )
    places = {}
    for header in sorted(CPP.rglob("*.h")):
        for name in definition.findall(header.read_text()):
            places.setdefault(name, []).append(str(header.relative_to(CPP)))
    assert len(places) > 100
    none_of(
        (f"{name}: {', '.join(headers)}" for name, headers in places.items() if len(headers) > 1),
        "rename all but one of each",
    )


def test_a_module_of_the_settings_imports_only_those_below_it():
    """Below it in the list of `vllm_router/settings/__init__.py`."""
    folder = ROOT / "python" / "vllm_router" / "settings"
    order = re.findall(r"^    (\w+)  ", (folder / "__init__.py").read_text(), re.MULTILINE)
    assert sorted(order) == sorted(path.stem for path in folder.glob("[!_]*.py"))
    imported = {
        name: re.findall(
            r"^from vllm_router\.settings\.(\w+)", (folder / f"{name}.py").read_text(), re.MULTILINE
        )
        for name in order
    }
    upwards = [
        f"{name} imports {other}"
        for at, name in enumerate(order)
        for other in imported[name]
        if other not in order[at + 1 :]
    ]
    none_of(upwards, "move what is shared into a module below both")
