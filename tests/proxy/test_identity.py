"""Whose request it is and which class it has: what keys and trusted peers may say, and nobody else."""

import json
import re
import socket

import pytest

from tests.fakes.cached import JSON, Engine, ask, cache_of, cached
from tests.fakes.harness import Client
from tests.fakes.wire import eventually, request, response
from vllm_router import _core

CHAT = "/v1/chat/completions"
CLASS_HEADERS = [
    "x-llm-d-inference-objective",
    "x-gateway-inference-objective",
    "x-dynamo-inference-objective",
    "x-smg-priority",
]
KEYS = """
sk-plain
sk-search  tenant=search max_class=interactive
sk-batch   tenant=nightly class=batch
sk-gateway tenant=gateway trusted
"""
USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}


def key(name):
    return ("Authorization", f"Bearer sk-{name}")


def whole(connection, _message):
    connection.send(response(200, json.dumps({"choices": [], "usage": USAGE}).encode(), JSON))


@pytest.fixture
def json_log(written_to):
    """`lines = json_log()`: `lines(count)` is that many lines of the access log from then on."""
    _core.configure_log(log_format="json")

    def begin():
        stdout = written_to(1)

        def lines(count):
            eventually(lambda: stdout().count("\n") >= count)
            return [json.loads(line) for line in stdout().splitlines()]

        return lines

    yield begin
    _core.configure_log()


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"
    path.write_text(KEYS)
    return path


@pytest.fixture
def start(harness, keys):
    """A router with these keys in front of one worker."""

    def start(**options):
        options = {"client_api_key_file": str(keys), "access_log": True, **options}
        return harness.router(harness.worker(whole), **options)

    return start


def chat(client, *fields, **members):
    body = json.dumps({"model": "m", "messages": [], **members}).encode()
    got = client.ask("POST", CHAT, JSON, *fields, body=body)
    assert got.status == 200, got.body
    return got


def who(line):
    return line.get("tenant"), line.get("class"), line.get("claimed_class")


def metric(router, name):
    router.must_rest()
    found = re.search(rf"^vllm_router_{re.escape(name)} (\S+)$", router.server.metrics_text(), re.M)
    return float(found[1]) if found else None


def tokens_of(router):
    """Prompt tokens by tenant, as metrics say."""
    router.must_rest()
    found = re.findall(
        r'^vllm_router_tenant_tokens_total\{tenant="(.*)",kind="prompt"\} (\S+)$',
        router.server.metrics_text(),
        re.M,
    )
    return {tenant: float(count) for tenant, count in found}


def read_again(router, result="ok"):
    """Reads the file of keys again, with this result."""

    def count():
        counter = f'vllm_router_reloads_total{{file="client_keys",result="{result}"}} '
        (line,) = [line for line in router.server.metrics_text().splitlines() if line.startswith(counter)]
        return int(line.removeprefix(counter))

    before = count()
    router.server.reload()
    eventually(lambda: count() > before)


# ---- what keys say


def test_keys_have_tenants_and_classes(harness, start, json_log):
    lines = json_log()
    client = harness.client(start())
    for name in ("plain", "search", "batch", "gateway"):
        chat(client, key(name))
    plain, *others = lines(4)
    assert re.fullmatch("key:[0-9a-f]{16}", plain["tenant"])
    assert who(plain)[1:] == ("default", None)
    assert [who(line) for line in others] == [
        ("search", "default", None),
        ("nightly", "batch", None),
        ("gateway", "default", None),
    ]


@pytest.mark.parametrize("header", CLASS_HEADERS)
def test_a_header_claims_what_the_key_permits(harness, start, json_log, header):
    lines = json_log()
    router = start()
    client = harness.client(router)
    for name in ("plain", "search", "batch", "gateway"):
        for claimed in ("interactive", "batch"):
            chat(client, key(name), (header, claimed))
    assert [who(line)[1:] for line in lines(8)] == [
        ("default", "interactive"),
        ("batch", None),
        ("interactive", None),
        ("batch", None),
        ("batch", "interactive"),
        ("batch", None),
        ("interactive", None),
        ("batch", None),
    ]
    assert metric(router, "class_claims_clamped_total") == 2


def test_a_body_claims_what_the_key_permits_even_behind_a_gateway(harness, start, json_log):
    lines = json_log()
    router = start()
    client = harness.client(router)
    for name in ("plain", "search", "batch", "gateway"):
        chat(client, key(name), service_tier="priority")
    chat(client, key("search"), service_tier="flex")
    chat(client, key("search"), service_tier="auto")
    chat(client, key("search"), messages=[{"role": "user", "content": '"service_tier": "priority"'}])
    chat(client, key("search"), ("x-smg-priority", "default"), service_tier="priority")
    assert [who(line)[1] for line in lines(8)] == [
        "default",
        "interactive",
        "batch",
        "default",
        "batch",
        "default",
        "default",
        "default",
    ]
    assert metric(router, "class_claims_clamped_total") == 3


@pytest.mark.parametrize(
    "body",
    [
        b'{"service_tier": "flex", "service_tier": "priority"}',
        b'{"service\\u005ftier": "priority"}',
        b'{"x": {"service_tier": "priority"}}',
        b'{"service_tier": ["priority"]}',
        b'{"service_tier": "priority"',
        b'service_tier "priority"',
        b'{"service_tier": "\\ud800"}',
    ],
)
def test_no_spelling_of_a_body_raises_anyone(harness, start, json_log, body):
    lines = json_log()
    client = harness.client(start())
    for name in ("plain", "batch"):
        assert client.ask("POST", CHAT, JSON, key(name), body=body).status == 200
    assert [who(line)[1] for line in lines(2)] == ["default", "batch"]


def test_several_fields_and_unknown_names_raise_nobody(harness, start, json_log):
    lines = json_log()
    router = start()
    client = harness.client(router)
    low, high = ("X-SMG-Priority", "batch"), ("x-smg-priority", "SYSTEM")
    for fields in ((low, high), (high, low), (high, (CLASS_HEADERS[0], "batch"))):
        chat(client, key("search"), *fields)
        chat(client, key("gateway"), *fields)
    chat(client, key("search"), ("x-smg-priority", "gold"), service_tier="priority")
    assert [who(line)[1] for line in lines(7)] == ["batch"] * 6 + ["default"]
    assert metric(router, "class_claims_unknown_total") == 1


def test_the_class_of_an_alias_counts_behind_the_clients_claims(harness, start, json_log):
    lines = json_log()
    client = harness.client(
        start(model_alias=["nightly=m", "chat=m"], model_alias_class=["nightly=batch", "chat=interactive"])
    )
    chat(client, key("search"), model="nightly")
    chat(client, key("search"), model="chat")
    chat(client, key("plain"), model="chat")
    chat(client, key("search"), model="m")
    chat(client, key("search"), model="nightly", service_tier="priority")
    assert [who(line)[1:] for line in lines(5)] == [
        ("batch", None),
        ("interactive", None),
        ("default", "interactive"),
        ("default", None),
        ("interactive", None),
    ]


# ---- tenants of gateways


def test_a_tenants_header_counts_from_a_trusted_key_alone(harness, start, json_log):
    lines = json_log()
    router = start(tenant_header="X-Tenant-ID")
    client = harness.client(router)
    chat(client, key("search"), ("X-Tenant-ID", "nightly"))
    chat(client, key("plain"), ("x-tenant-id", "nightly"))
    chat(client, key("gateway"), ("x-tenant-id", "acme"))
    chat(client, key("gateway"))
    stolen, plain, named, own = [who(line)[0] for line in lines(4)]
    assert (stolen, named, own) == ("search", "acme", "gateway")
    assert plain.startswith("key:")
    assert metric(router, 'tenant_headers_ignored_total{reason="untrusted"}') == 2
    tokens = tokens_of(router)
    assert (tokens["search"], tokens["acme"], tokens["gateway"]) == (100, 100, 100)
    assert "nightly" not in tokens


def test_without_the_option_a_trusted_key_names_no_tenant(harness, start, json_log):
    lines = json_log()
    client = harness.client(start())
    chat(client, key("gateway"), ("x-tenant-id", "acme"))
    assert who(lines(1)[0])[0] == "gateway"


def test_an_address_is_trusted_and_what_it_forwards_is_not(harness, json_log):
    lines = json_log()
    router = harness.router(
        harness.worker(whole), tenant_header="x-tenant", trusted_addresses=["127.0.0.2"], access_log=True
    )
    for address in ("127.0.0.1", "127.0.0.2"):
        client = Client(socket.create_connection(("127.0.0.1", router.port), source_address=(address, 0)))
        chat(
            client,
            ("x-tenant", "acme"),
            ("x-smg-priority", "interactive"),
            ("X-Forwarded-For", "127.0.0.2"),
            ("Forwarded", "for=127.0.0.2"),
        )
        client.close()
    assert [who(line) for line in lines(2)] == [
        ("anonymous", "default", "interactive"),
        ("acme", "interactive", None),
    ]


def test_a_gateway_that_names_two_tenants_names_none(harness, start, json_log):
    """Its client sent one, and the gateway added its own."""
    lines = json_log()
    router = start(tenant_header="x-tenant")
    client = harness.client(router)
    for fields in ((("x-tenant", "victim"), ("x-tenant", "mine")), (("x-tenant", "a"), ("X-Tenant", "a"))):
        chat(client, key("gateway"), *fields)
    assert [who(line)[0] for line in lines(2)] == ["gateway", "gateway"]
    assert metric(router, 'tenant_headers_ignored_total{reason="ambiguous"}') == 2
    chat(client, key("gateway"), ("x-tenant", "victim, mine"))
    assert who(lines(3)[2])[0].startswith("hash:")


@pytest.mark.parametrize(
    "name",
    [
        b'a"} 1\\nvllm_router_up{x="',
        b"a\\",
        b"other",
        b"key:0123456789abcdef",
        b"x" * 5000,
        b"\xff\xfe",
        "Zürich\u2028".encode(),
        b"a\tb",
    ],
    ids=["labels", "backslash", "other", "key", "long", "bytes", "unicode", "tab"],
)
def test_no_name_leaves_its_label_or_its_line(harness, start, json_log, name):
    lines = json_log()
    router = start(tenant_header="x-tenant")
    client = harness.client(router)
    head = request("POST", CHAT, JSON, key("gateway"), body=b"{}")
    client.send(head.replace(b"\r\n", b"\r\nx-tenant: " + name + b"\r\n", 1))
    assert client.read_response().status == 200
    chat(client, key("search"))
    named, honest = lines(2)
    assert re.fullmatch("hash:[0-9a-f]{32}", named["tenant"])
    assert honest["tenant"] == "search"
    assert tokens_of(router) == {named["tenant"]: 100, "search": 100, "other": 0}
    for line in router.server.metrics_text().splitlines():
        assert re.fullmatch(r"#.*|[a-z_:0-9]+(\{[^\n]*\})? \S+", line)


def test_invented_tenants_take_no_names_from_honest_ones(harness, start):
    router = start(tenant_header="x-tenant", max_tenants=50, access_log=False)
    client = harness.client(router)
    for number in range(300):
        chat(client, key("gateway"), ("x-tenant", f"invented-{number}"))
        if number % 10 == 0:
            chat(client, key("search"))
            chat(client, key("gateway"), ("x-tenant", "honest"))
    tokens = tokens_of(router)
    assert len(tokens) <= 50 + 1
    assert (tokens["search"], tokens["honest"]) == (3000, 3000)
    assert sum(tokens.values()) == 36_000


# ---- keys that change, and keys of others


def test_a_request_keeps_what_its_key_said_when_it_began(harness, keys, json_log):
    lines = json_log()

    def answer(connection, message):
        if b"slow" in message.body:
            gate.wait()
        whole(connection, message)

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker, client_api_key_file=str(keys), access_log=True)
    slow, fast = harness.client(router), harness.client(router)
    slow.send(request("POST", CHAT, JSON, key("search"), ("x-smg-priority", "interactive"), body=b'"slow"'))
    worker.wait_for_requests(1)
    for attributes in ("tenant=moved class=batch", "", "tenant=again"):
        keys.write_text(f"sk-search {attributes}\nsk-new tenant=new\n")
        read_again(router)
        chat(fast, key("search"))
    gate.open()
    assert slow.read_response().status == 200
    first, second, third, last = [who(line) for line in lines(4)]
    assert (first, third) == (("moved", "batch", None), ("again", "default", None))
    assert second[0].startswith("key:")
    assert last == ("search", "interactive", None)


def test_a_file_with_a_mistake_changes_nothing(harness, start, keys, json_log, written_to):
    lines, messages = json_log(), written_to(2)
    router = start()
    client = harness.client(router)
    keys.write_text("sk-search tenant=moved\nsk-plain weight=9\n")
    read_again(router, "failed")
    eventually(lambda: "line 2: the attribute weight= is unknown" in messages())
    assert "sk-" not in messages()
    chat(client, key("search"))
    assert who(lines(1)[0])[0] == "search"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sk-one tenant=a\nsk-one tenant=b", "line 2: the key is that of line 1 with other attributes"),
        ("sk-one sk-two", "line 1: attribute 1 behind the key is unknown"),
    ],
)
def test_a_router_does_not_start_with_a_mistake(harness, tmp_path, text, complaint):
    (tmp_path / "wrong").write_text(text)
    with pytest.raises(ValueError, match=complaint) as told:
        harness.router(harness.worker(), client_api_key_file=str(tmp_path / "wrong"))
    assert "sk-" not in str(told.value)


def test_admins_keys_have_no_attributes(harness, tmp_path):
    (tmp_path / "admins").write_text("sk-admin trusted")
    with pytest.raises(ValueError, match="admins' keys have no attributes"):
        harness.router(harness.worker(), admin_api_key_file=str(tmp_path / "admins"))


def test_a_validator_names_tenant_and_highest_class(harness, json_log):
    lines = json_log()
    said = {
        "sk-a": [("X-Tenant", "acme"), ("X-Max-Class", "interactive")],
        "sk-b": [("X-Tenant", "acme"), ("X-Tenant", "victim"), ("X-Max-Class", "system")],
        "sk-c": [],
        "sk-d": [("X-Max-Class", "batch")],
    }

    def judge(connection, message):
        bearer = message.get("authorization").removeprefix("Bearer ")
        connection.send(response(200, b"", *said[bearer]))

    validator = harness.worker(judge)
    router = harness.router(harness.worker(whole), api_key_validation_urls=[validator.url], access_log=True)
    client = harness.client(router)
    for _ in range(2):
        for name in "abcd":
            chat(client, key(name), ("x-smg-priority", "system"), ("X-Tenant", "victim"))
    assert len(validator.requests) == 4
    found = [who(line) for line in lines(8)]
    assert found[:4] == found[4:]
    assert found[0] == ("acme", "interactive", None)
    assert found[1] == found[2] == (None, None, None)  # nothing is said, so nothing is told apart
    assert found[3][0].startswith("key:")
    assert found[3][1:] == ("batch", "interactive")


def test_tenants_of_a_validator_take_no_more_series_than_a_gateways(harness):
    """A service may have any number of customers; the 64 busiest have series."""

    def judge(connection, message):
        name = message.get("authorization").removeprefix("Bearer sk-")
        connection.send(response(200, b"", ("X-Tenant", f"customer-{name}")))

    router = harness.router(harness.worker(whole), api_key_validation_urls=[harness.worker(judge).url])
    client = harness.client(router)
    for number in range(70):
        chat(client, key(number))
    tokens = tokens_of(router)
    assert len(tokens) == 65
    assert tokens["other"] == 600


# ---- response cache


def test_tenants_of_one_gateway_share_no_stored_response(harness, keys):
    options = {"client_api_key_file": str(keys), "tenant_header": "x-tenant"}
    client = harness.client(cached(harness, Engine(harness), **options))

    def seen(*tenants, name="gateway"):
        return cache_of(ask(client, None, key(name), *(("x-tenant", tenant) for tenant in tenants)))

    assert [seen("a"), seen("a"), seen("b"), seen("b"), seen("A")] == ["MISS", "HIT", "MISS", "HIT", "MISS"]
    assert [seen(), seen(), seen("gateway")] == ["MISS", "HIT", "MISS"]
    assert [seen("Zürich"), seen("Zürich"), seen("Zurich ")] == ["MISS", "HIT", "MISS"]
    assert [seen("a", "b"), seen("a", "b")] == ["BYPASS", "BYPASS"]
    # One that is not trusted has responses of its own, whatever it calls itself.
    assert [seen("a", name="search"), seen("b", name="search")] == ["MISS", "HIT"]


def test_a_client_that_calls_itself_as_a_tenant_gets_none_of_its_responses(harness, keys):
    """Where the operator tells tenants apart by the same header."""
    client = harness.client(
        cached(
            harness,
            Engine(harness),
            client_api_key_file=str(keys),
            tenant_header="x-tenant",
            response_cache_tenant_source="header",
            response_cache_tenant_header="x-tenant",
        )
    )
    tenant = ("x-tenant", "acme")
    seen = [cache_of(ask(client, None, key(name), tenant)) for name in ("gateway", "gateway", "plain")]
    assert seen == ["MISS", "HIT", "MISS"]


# ---- off


def test_without_attributes_and_options_nothing_is_told_apart(harness, tmp_path, json_log):
    lines = json_log()
    (tmp_path / "plain").write_text("sk-plain\n")
    worker = harness.worker(whole)
    router = harness.router(worker, client_api_key_file=str(tmp_path / "plain"), access_log=True)
    client = harness.client(router)
    fields = (("x-smg-priority", "interactive"), ("X-Tenant-ID", "acme"))
    chat(client, key("plain"), *fields, service_tier="priority")
    (line,) = lines(1)
    assert who(line) == (None, None, None)
    (sent,) = worker.requests
    assert (sent.get("x-smg-priority"), sent.get("x-tenant-id")) == ("interactive", "acme")
    assert tokens_of(router) == {"other": 0}


def test_what_workers_get_is_the_same_with_attributes(harness, keys):
    worker = harness.worker(whole)
    sent = {}
    for text in ("sk-search", "sk-search tenant=search class=batch trusted"):
        keys.write_text(text)
        client = harness.client(harness.router(worker, client_api_key_file=str(keys)))
        fields = (("x-smg-priority", "interactive"), ("x-tenant", "acme"), ("x-request-id", "r"))
        chat(client, key("search"), *fields, service_tier="priority")
        sent[text] = re.sub(rb"(?i)\r\nvia: [^\r]*", b"", worker.requests[-1].raw)
    assert len(set(sent.values())) == 1


# ---- receipts


def test_receipts_name_tenant_and_class(harness, start):
    router = start(admin_port=0)
    chat(harness.client(router), key("search"), ("x-smg-priority", "interactive"))
    admin = harness.client_at(router.server.admin_port)

    def receipts():
        return json.loads(admin.ask("GET", "/admin/receipts").body)["receipts"]

    eventually(lambda: len(receipts()) == 1)
    (receipt,) = receipts()
    assert (receipt["tenant"], receipt["class"]) == ("search", "interactive")
