"""The response cache in a Redis that fails: what clients get, what the metrics say, and how it ends.

Each request is responded to with 200 and a worker's body, whatever Redis does. What Redis does, by number:

     1  refuses connections, or is gone           FAULTS, where a router starts meanwhile too
     2  has a name that does not resolve          AT_THE_START; one that is forgotten later: test_resolver.py
     3  lets no connection in                     AT_THE_START
     4  fails the TLS handshake                   FAULTS
     5  does not let the router log in            FAULTS
     6  is slow                                   test_a_slow_redis_…, test_a_redis_that_is_stuck_…
     7  is stuck                                  AT_THE_START; later: test_a_redis_that_is_stuck_…
     8  vanishes, and connections stay open       test_connections_that_lead_nowhere_…
     9  ends the connection inside a reply        test_half_a_response_…
    10  sends what is not RESP2, or no line end   test_bytes_that_are_no_reply_…
    11  is full, or takes no writes               UNWRITABLE
    12  became a replica                          UNWRITABLE, test_after_a_failover_…
    13  loads, has no primary, runs a script      FAULTS
    14  is a cluster                              FAULTS, test_a_cluster_…
    15  permits no keys, or no SCAN               FAULTS; no SCAN: test_response_cache_service.py
    16  has too many clients                      FAULTS
    17  has a key of another kind                 test_a_key_of_another_kind_…
    18  has lost what it had                      test_a_flush_…, test_a_failover_that_loses_…
    19  has a value that is no response           test_a_value_that_is_no_response_…, test_shared_responses.py
    20  is cut off and returns                    FAULTS, test_invalidations_of_a_router_…
"""

import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.cached import (
    CHAT,
    FALLBACK,
    JSON,
    Engine,
    Send,
    answer_of,
    ask,
    body_of,
    cache_of,
    counted,
    entries_in_memory,
    kept,
    keys_of,
    metric,
    send_answer,
    shared,
    wait_until_used,
)
from tests.fakes.harness import Harness, RunningRouter
from tests.fakes.redis_server import FakeRedis, RedisServer
from tests.fakes.wire import eventually, request, response
from tests.models.resp import command_of

OLD, NEW = body_of(user="old"), body_of(user="new")
LATE = "vllm_router_response_cache_late_total"
GENERATIONS = "cr:resp:~gen"

# A machine that is slow is not to be taken for a Redis that is. Probes come each second.
PATIENT = {
    "response_cache_lookup_budget_ms": 10_000,
    "redis_command_timeout_ms": 10_000,
    "redis_connect_timeout_ms": 10_000,
    "response_cache_health_interval_secs": 1,
}
UNANSWERED = {**PATIENT, "response_cache_lookup_budget_ms": 50, "redis_command_timeout_ms": 60_000}


def errors_of(router: RunningRouter) -> dict[str, float]:
    name = 'continuum_cache_redis_errors_total{type="%s"}'
    return {kind: metric(router, name % kind) for kind in ("connection", "timeout", "other")}


def is_down(router: RunningRouter) -> bool:
    return metric(router, FALLBACK) == 1


@dataclass
class Scene:
    """router ── relay ── Redis"""

    harness: Harness
    redis: RedisServer
    folder: Path
    url: str = ""

    def open(
        self,
        login: str = "",
        database: str = "",
        tls: bool = False,
        send: Send = send_answer,
        **options: Any,
    ) -> None:
        self.relay = self.harness.relay(self.redis)
        self.url = f"redis{'s' if tls else ''}://{login}127.0.0.1:{self.relay.port}{database}"
        self.engine = Engine(self.harness, send=send)
        self.options = PATIENT | options
        self.router = shared(self.harness, self, self.engine, **self.options)
        self.client = self.harness.client(self.router)

    def start(self) -> RunningRouter:
        """Another router, whatever Redis does."""
        options = {"response_cache": True, "response_cache_backend": "redis", "redis_url": self.url}
        return self.harness.router(self.engine, **options, **self.options)

    def lead_to(self, port: int) -> None:
        """Where the router's connections end from now on."""
        self.relay.target = ("127.0.0.1", port)
        self.relay.cut("close")

    def errors(self) -> dict[str, float]:
        return errors_of(self.router)

    def is_down(self) -> bool:
        return is_down(self.router)

    def ask(self, body: bytes) -> tuple[str | None, bytes]:
        """X-Cache and the body, which is a worker's."""
        said = ask(self.client, body)
        assert said.status == 200
        assert said.body in [answer_of(number + 1) for number in range(self.engine.count)]
        return cache_of(said), said.body

    def ask_worker(self, body: bytes) -> bytes:
        """It is not served from anywhere else."""
        before = self.engine.count
        assert self.ask(body) == ("MISS", answer_of(before + 1))
        return answer_of(before + 1)

    def wait_for_hit(self, body: bytes) -> bytes:
        found: list[bytes] = []

        def hit() -> bool:
            cache, said = self.ask(body)
            found.append(said)
            return cache == "HIT"

        eventually(hit, "it was never found")
        return found[-1]

    def wait_for_writes(self) -> None:
        """Whatever was sent to Redis has its reply."""
        self.router.must_rest()
        eventually(lambda: metric(self.router, "continuum_cache_redis_connections_active") == 0)

    def flush(self) -> None:
        self.wait_for_writes()
        self.redis.call("FLUSHALL")

    def keep(self, body: bytes) -> bytes:
        """A response that is in Redis from now on, and the last one for that key."""
        found = [("MISS", self.ask_worker(body))]

        def hit() -> bool:
            self.wait_for_writes()
            found.append(self.ask(body))
            return found[-1][0] == "HIT"

        eventually(hit, "it was never kept")
        assert entries_in_memory(self.client) == 0
        return found[-1][1]

    def must_serve_from_memory(self) -> None:
        """As it does while Redis is down."""
        body = body_of(user=f"memory {next(_numbers)}")
        first = self.ask_worker(body)
        assert self.wait_for_hit(body) == first
        assert entries_in_memory(self.client) >= 1
        assert self.is_down()

    def must_return(self) -> None:
        """Redis is used again, and the fallback is forgotten."""
        eventually(lambda: not self.is_down(), "Redis stayed down")
        wait_until_used(self.harness, self.router)
        assert entries_in_memory(self.client) == 0


_numbers = itertools.count()


@pytest.fixture
def make_scene(harness, tmp_path):
    with contextlib.ExitStack() as closing:

        def make(*redis_options: str, **options: Any) -> Scene:
            redis = closing.enter_context(RedisServer(tmp_path, *redis_options))
            if "--requirepass" in redis_options:
                redis.call("AUTH", redis_options[-1])
            scene = Scene(harness, redis, tmp_path)
            scene.open(**options)
            return scene

        yield make


@pytest.fixture
def scene(make_scene):
    return make_scene()


# ---- it is down: the router's memory is used until a probe finds that it is back

During = Callable[[Scene], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    name: str
    kind: str  # of the errors that are counted
    during: During
    cuts: bool = False  # connections that stand, which may be errors as well
    keeps: bool = True  # Redis has its data afterwards
    options: dict[str, Any] = field(default_factory=dict)
    redis_options: tuple[str, ...] = ()
    says: str = ""  # in the log


@contextlib.contextmanager
def process_gone(scene):
    scene.redis.kill()
    yield
    assert scene.redis.start()


@contextlib.contextmanager
def cut_off(scene):
    scene.relay.pause()
    yield
    scene.relay.resume()


def replied(error: str, *names: str) -> During:
    """A fake is there instead, which replies so to some commands."""

    @contextlib.contextmanager
    def during(scene):
        with FakeRedis() as fake:
            fake.replies |= {name: b"-%s\r\n" % error.encode() for name in names}
            scene.lead_to(fake.port)
            yield
            scene.lead_to(scene.redis.port)

    return during


def configured(name: str, during: str, after: str) -> During:
    """A setting that counts for new connections; those of before are closed."""

    @contextlib.contextmanager
    def context(scene):
        assert scene.redis.call("CONFIG", "SET", name, during) == b"OK"
        scene.redis.call("CLIENT", "KILL", "TYPE", "normal")  # but this one
        yield
        assert scene.redis.call("CONFIG", "SET", name, after) == b"OK"

    return context


def another(*options: str) -> During:
    """Another server is there instead."""

    @contextlib.contextmanager
    def during(scene):
        with RedisServer(scene.folder, *options) as other:
            scene.lead_to(other.port)
            yield
            scene.lead_to(scene.redis.port)

    return during


@contextlib.contextmanager
def without_primary(scene):
    scene.redis.call("CONFIG", "SET", "replica-serve-stale-data", "no")
    scene.redis.call("REPLICAOF", "127.0.0.1", str(scene.harness.refusing_port().port))
    yield
    scene.redis.call("REPLICAOF", "NO", "ONE")


@contextlib.contextmanager
def busy(scene):
    scene.redis.call("CONFIG", "SET", "busy-reply-threshold", "1")
    with socket.create_connection(("127.0.0.1", scene.redis.port)) as other:
        other.sendall(command_of(["EVAL", "while true do end", "0"]))
        eventually(lambda: scene.redis.call("PING").startswith(b"BUSY"))
        yield
        assert scene.redis.call("SCRIPT", "KILL") == b"OK"


@contextlib.contextmanager
def without_keys(scene):
    scene.redis.call("ACL", "SETUSER", "default", "resetkeys", "~others:*")
    yield
    scene.redis.call("ACL", "SETUSER", "default", "allkeys")


ALL_COMMANDS = ("PING", "GET", "SET", "DEL", "HGETALL")
USES_KEYS = ALL_COMMANDS[1:]
PASSWORD = {"login": ":SECRET@"}

FAULTS = [
    Fault("1 process gone", "connection", process_gone, cuts=True, keeps=False),
    Fault("5 NOAUTH", "other", configured("requirepass", "SECRET", ""), cuts=True, says="replied NOAUTH"),
    Fault(
        "5 WRONGPASS",
        "other",
        configured("requirepass", "OTHER", "SECRET"),
        cuts=True,
        options=PASSWORD,
        redis_options=("--requirepass", "SECRET"),
        says="replied WRONGPASS",
    ),
    Fault(
        "5 AUTH without a password",
        "other",
        configured("requirepass", "", "SECRET"),
        cuts=True,
        options=PASSWORD,
        redis_options=("--requirepass", "SECRET"),
        says="replied ERR: check the user and the password",
    ),
    Fault(
        "5 DB index",
        "other",
        another("--databases", "1"),
        cuts=True,
        options={"database": "/17"},
        redis_options=("--databases", "18"),
        says="check the database at the end of the Redis URL",
    ),
    Fault("13 LOADING", "other", replied("LOADING it loads", *ALL_COMMANDS), cuts=True),
    Fault("13 MASTERDOWN", "other", without_primary, says="replied MASTERDOWN"),
    Fault("13 BUSY", "other", busy, says="replied BUSY"),
    Fault("14 MOVED", "other", replied("MOVED 1 127.0.0.1:1", *USES_KEYS), cuts=True, says="cluster proxy"),
    Fault("14 ASK", "other", replied("ASK 1 127.0.0.1:1", *USES_KEYS), cuts=True, says="cluster proxy"),
    Fault("15 NOPERM", "other", without_keys, says="replied NOPERM"),
    Fault("16 clients", "connection", configured("maxclients", "1", "1000"), cuts=True),
    Fault(
        "20 partition",
        "timeout",
        cut_off,
        options={
            "redis_command_timeout_ms": 2_000,
            "redis_connect_timeout_ms": 2_000,
            "response_cache_lookup_budget_ms": 1_000,
        },
    ),
]


def must_go_down_and_return(scene, fault, log):
    """Both a router that uses it and one that starts while it fails."""
    first = scene.keep(OLD)
    before = scene.errors()

    def grown():
        return {kind for kind, count in scene.errors().items() if count > before[kind]}

    with fault.during(scene):
        second = scene.ask_worker(OLD)
        eventually(scene.is_down, "Redis is not down")
        scene.must_serve_from_memory()
        eventually(lambda: fault.kind in grown(), f"errors are {scene.errors()} after {before}")
        assert grown() <= {fault.kind, *(["connection"] if fault.cuts else [])}
        started = scene.start()
        assert ask(scene.harness.client(started), OLD).status == 200
        eventually(lambda: is_down(started))
        assert {kind for kind, count in errors_of(started).items() if count} == {fault.kind}
        assert f"127.0.0.1:{scene.relay.port}/" in log()
        assert fault.says in log()
    scene.must_return()
    wait_until_used(scene.harness, started)
    if fault.keeps:
        # The second one, if it was on its way to Redis.
        assert scene.wait_for_hit(OLD) in (first, second)
    assert "SECRET" not in log()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_redis_that_fails_is_down_and_used_again_afterwards(make_scene, written_to, fault):
    log = written_to(2)
    must_go_down_and_return(make_scene(*fault.redis_options, **fault.options), fault, log)


def tls_options(files, authority):
    return (
        *("--tls-cert-file", files.cert, "--tls-key-file", files.key),
        *("--tls-ca-cert-file", authority.path, "--tls-auth-clients", "no"),
    )


# A server without TLS takes a ClientHello for the start of a command and says nothing.
TLS_FAULTS = [
    ("untrusted", "connection", "fails the TLS handshake: "),
    ("wrong name", "connection", "fails the TLS handshake: "),
    ("plain", "timeout", "does not let the router log in within"),
]


@pytest.mark.parametrize(("name", "kind", "says"), TLS_FAULTS, ids=[f"4 {name}" for name, _, _ in TLS_FAULTS])
def test_a_redis_that_fails_the_handshake_is_not_used(
    make_scene, written_to, authority, stranger, name, kind, says
):
    log = written_to(2)
    files = {
        "untrusted": lambda: (stranger.certify("127.0.0.1"), stranger),
        "wrong name": lambda: (authority.certify("elsewhere"), authority),
    }
    during = another(*(tls_options(*files[name]()) if name in files else ()))
    fault = Fault(name, kind, during, cuts=True, says=says)
    options = {"redis_connect_timeout_ms": 2_000} if name == "plain" else {}
    own = tls_options(authority.certify("127.0.0.1"), authority)
    scene = make_scene(*own, tls=True, redis_ca_file=authority.path, **options)
    must_go_down_and_return(scene, fault, log)


def test_a_cluster_is_down_until_it_is_one_server(make_scene, tmp_path):
    """Without slots it serves no key; with all of them it is as good as any other."""
    scene = make_scene()
    scene.keep(OLD)
    before = scene.errors()
    with RedisServer(tmp_path, "--cluster-enabled", "yes") as cluster:
        scene.lead_to(cluster.port)
        scene.ask_worker(OLD)
        eventually(scene.is_down)
        scene.must_serve_from_memory()
        # It may be down since the relay cut its connection.
        eventually(lambda: scene.errors()["other"] > before["other"], "the cluster was not asked")
        assert scene.errors()["timeout"] == 0
        assert cluster.call("CLUSTER", "ADDSLOTSRANGE", "0", "16383") == b"OK"
        scene.must_return()
        scene.lead_to(scene.redis.port)


# ---- at the start


@contextlib.contextmanager
def lets_nobody_in(harness, redis):
    """Its queue of connections is full; afterwards Redis has the port."""
    port = harness.silent_port()
    redis.kill()
    redis.port = port.port
    yield f"redis://127.0.0.1:{port.port}"
    port.stop()
    assert redis.start()


@contextlib.contextmanager
def stuck(_harness, redis):
    redis.pause()
    yield redis.url
    redis.resume()


@contextlib.contextmanager
def nobody_knows(_harness, redis):
    label = "x" * 64  # too long, so that no name server is asked
    yield f"redis://{label}.test:{redis.port}"


AT_THE_START = [
    ("2 name", nobody_knows, "connection", False),
    ("3 black hole", lets_nobody_in, "timeout", True),
    ("7 stuck", stuck, "timeout", True),
]


@pytest.mark.parametrize(
    ("during", "kind", "returns"), [row[1:] for row in AT_THE_START], ids=[row[0] for row in AT_THE_START]
)
def test_no_redis_at_the_start_is_a_start_with_memory(harness, redis, tmp_path, during, kind, returns):
    scene = Scene(harness, redis, tmp_path)
    scene.engine = Engine(harness)
    with during(harness, redis) as scene.url:
        scene.options = PATIENT | {"redis_connect_timeout_ms": 1_000}
        scene.router = scene.start()
        scene.client = harness.client(scene.router)
        scene.ask_worker(OLD)  # nothing is proven yet
        eventually(scene.is_down)
        scene.must_serve_from_memory()
        eventually(lambda: scene.errors()[kind] >= 1)
        assert {name for name, count in scene.errors().items() if count} == {kind}
    if returns:
        scene.must_return()


# ---- it is slow, or cut off


def test_a_slow_redis_costs_the_budget_and_still_gets_the_response(make_scene):
    """Its replies are held back until the client has its response: only the budget can end the wait."""
    scene = make_scene(**UNANSWERED)
    scene.flush()
    scene.relay.pause()
    scene.ask_worker(OLD)
    assert counted(scene.router, LATE) >= 1
    kept(scene.redis, 1)
    scene.relay.resume()
    scene.wait_for_hit(OLD)
    assert not scene.is_down()
    assert set(scene.errors().values()) == {0}
    assert counted(scene.router, 'continuum_cache_redis_latency_seconds_count{operation="set"}') >= 1


def test_a_redis_that_is_stuck_holds_up_no_request_beyond_its_budget(make_scene, harness):
    """All of them have their responses while none of their replies has passed."""
    scene = make_scene(**UNANSWERED)
    scene.relay.pause()
    late = metric(scene.router, LATE)
    clients = [harness.client(scene.router) for _ in range(24)]
    for number, client in enumerate(clients):
        client.send(request("POST", CHAT, JSON, body=body_of(seed=number)))
    for client in clients:
        said = client.read_response()
        assert (said.status, cache_of(said)) == (200, "MISS")
    assert counted(scene.router, LATE) == late + len(clients)
    assert not scene.is_down()
    scene.relay.resume()
    scene.must_return()


@pytest.mark.parametrize("connections", [1, 8])
def test_connections_that_lead_nowhere_are_given_up(make_scene, harness, connections):
    """Row 8: the peer has vanished and sent no end, and there is one again for new connections."""
    scene = make_scene(
        redis_pool_size=connections, redis_command_timeout_ms=3_000, response_cache_lookup_budget_ms=2_500
    )
    scene.keep(OLD)
    before = scene.errors()
    scene.relay.strand()
    scene.ask_worker(OLD)
    eventually(scene.is_down)
    assert scene.errors()["timeout"] > before["timeout"]
    scene.must_return()
    open_ = "continuum_cache_redis_connections_%s"
    eventually(lambda: metric(scene.router, open_ % "idle") == connections + 1)
    late, after = counted(scene.router, LATE), scene.errors()
    scene.relay.pause()  # so that each look-up takes another connection
    clients = [harness.client(scene.router) for _ in range(connections)]
    for number, client in enumerate(clients):
        client.send(request("POST", CHAT, JSON, body=body_of(seed=number)))
    eventually(lambda: metric(scene.router, open_ % "active") >= connections)
    scene.relay.resume()
    assert {client.read_response().status for client in clients} == {200}
    assert (counted(scene.router, LATE), scene.errors()) == (late, after)
    assert after["connection"] == before["connection"]


def test_invalidations_of_a_router_that_is_cut_off_come_before_it_uses_redis(make_scene, harness):
    """Row 20. Both routers know the old response, and neither sends it again."""
    scene = make_scene(redis_command_timeout_ms=2_000, response_cache_lookup_budget_ms=500)
    old = scene.keep(OLD)
    other = harness.client(shared(harness, scene.redis, scene.engine, **PATIENT))
    assert ask(other, OLD).body == old
    scene.relay.pause()
    eventually(scene.is_down)
    cleared = scene.client.ask("POST", "/admin/response-cache/invalidate", body=b'{"clear_all": true}')
    assert (cleared.status, json.loads(cleared.body)["success"]) == (200, True)
    scene.must_serve_from_memory()
    assert ask(other, OLD).body == old
    scene.relay.resume()

    def used() -> bool:
        assert scene.ask(OLD)[1] != old
        return not scene.is_down() and entries_in_memory(scene.client) == 0

    eventually(used)
    scene.must_return()
    eventually(lambda: ask(other, OLD).body != old, "the other router was not told")


# ---- what it sends is broken


@pytest.mark.parametrize("how", ["reset", "close"])
def test_half_a_response_is_not_sent(make_scene, how):
    scene = make_scene()
    first = scene.keep(OLD)
    before = scene.errors()
    halved = threading.Event()

    def half(data):
        if b"VRC1" not in data:
            return data
        halved.set()
        return data[: len(data) // 2]

    scene.relay.garble = half
    number = scene.engine.count + 1
    scene.client.send(request("POST", CHAT, JSON, body=OLD))
    assert halved.wait(30)
    scene.relay.target = ("127.0.0.1", scene.harness.refusing_port().port)
    scene.relay.cut(how)
    said = scene.client.read_response()
    assert (said.status, cache_of(said), said.body) == (200, "MISS", answer_of(number))
    eventually(scene.is_down)
    scene.must_serve_from_memory()
    assert {kind for kind, count in scene.errors().items() if count > before[kind]} == {"connection"}
    scene.relay.garble = None
    scene.lead_to(scene.redis.port)
    scene.must_return()
    assert scene.wait_for_hit(OLD) == first


@pytest.mark.parametrize("junk", [b"garbage\r\n", b"+" + b"x" * 70_000], ids=["garbage", "endless line"])
def test_bytes_that_are_no_reply_are_down(make_scene, junk):
    scene = make_scene()
    first = scene.keep(OLD)
    before = scene.errors()
    scene.relay.garble = lambda _: junk
    second = scene.ask_worker(OLD)
    eventually(scene.is_down)
    scene.must_serve_from_memory()
    assert {kind for kind, count in scene.errors().items() if count > before[kind]} == {"other"}
    scene.relay.garble = None
    scene.must_return()
    assert scene.wait_for_hit(OLD) in (first, second)


# ---- it takes no writes, and can be read


@contextlib.contextmanager
def full(redis, _harness):
    redis.call("CONFIG", "SET", "maxmemory", "1")
    yield
    redis.call("CONFIG", "SET", "maxmemory", "0")


@contextlib.contextmanager
def cannot_save(redis, _harness):
    """A folder has the name of its snapshot."""
    redis.call("CONFIG", "SET", "save", "3600 1000000")
    redis.call("BGSAVE")
    eventually(lambda: b"rdb_last_bgsave_status:err" in redis.call("INFO", "persistence"))
    yield
    redis.call("CONFIG", "SET", "save", "")


@contextlib.contextmanager
def without_replicas(redis, _harness):
    redis.call("CONFIG", "SET", "min-replicas-to-write", "1")
    yield
    redis.call("CONFIG", "SET", "min-replicas-to-write", "0")


@contextlib.contextmanager
def replica(redis, harness):
    redis.call("REPLICAOF", "127.0.0.1", str(harness.refusing_port().port))
    yield
    redis.call("REPLICAOF", "NO", "ONE")


UNWRITABLE = {
    "11 OOM": full,
    "11 MISCONF": cannot_save,
    "11 NOREPLICAS": without_replicas,
    "12 READONLY": replica,
}
unwritable = pytest.mark.parametrize("during", UNWRITABLE.values(), ids=UNWRITABLE)


@pytest.fixture
def scene_without_snapshots(make_scene, tmp_path):
    scene = make_scene("--dbfilename", "taken")
    (tmp_path / "taken" / "by").mkdir(parents=True)
    return scene


@unwritable
def test_a_redis_that_takes_no_writes_serves_what_it_has(scene_without_snapshots, during):
    scene = scene_without_snapshots
    first = scene.keep(OLD)
    before = scene.errors()
    with during(scene.redis, scene.harness):
        scene.ask_worker(NEW)
        eventually(lambda: scene.errors()["other"] > before["other"])
        scene.ask_worker(NEW)  # it is nowhere: not in Redis, and memory is not used
        assert scene.wait_for_hit(OLD) == first
        assert (scene.is_down(), entries_in_memory(scene.client)) == (False, 0)
    scene.wait_for_hit(NEW)
    assert entries_in_memory(scene.client) == 0
    assert {kind for kind, count in scene.errors().items() if count > before[kind]} == {"other"}


@unwritable
def test_a_router_that_starts_meanwhile_reads_it_too(scene_without_snapshots, during):
    scene = scene_without_snapshots
    first = scene.keep(OLD)
    with during(scene.redis, scene.harness):
        router = scene.start()
        client = scene.harness.client(router)
        eventually(lambda: ask(client, OLD).body == first or is_down(router))
        assert not is_down(router)
        assert set(errors_of(router).values()) == {0}


def test_after_a_failover_the_new_primary_gets_the_responses(make_scene, tmp_path):
    """Connections still lead to the old primary, a replica now; new ones lead to the new one."""
    scene = make_scene()
    scene.redis.call("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    first = scene.keep(OLD)
    with RedisServer(tmp_path) as primary:
        primary.call("REPLICAOF", "127.0.0.1", str(scene.redis.port))
        eventually(lambda: sorted(keys_of(primary)) == sorted(keys_of(scene.redis)))
        primary.call("REPLICAOF", "NO", "ONE")
        scene.redis.call("REPLICAOF", "127.0.0.1", str(scene.harness.refusing_port().port))
        scene.relay.target = ("127.0.0.1", primary.port)
        before = len(keys_of(primary))
        scene.ask_worker(NEW)  # READONLY, so connections are opened anew
        eventually(lambda: scene.ask(NEW)[0] == "HIT")
        assert len(keys_of(primary)) == before + 1
        assert scene.wait_for_hit(OLD) == first
        assert (scene.is_down(), entries_in_memory(scene.client)) == (False, 0)
        assert scene.errors()["other"] >= 1
        assert scene.errors()["connection"] == scene.errors()["timeout"] == 0
        scene.lead_to(scene.redis.port)


# ---- what it has


def test_a_key_of_another_kind_is_a_miss_and_not_deleted(make_scene):
    """The worker's response is one that is not kept, so nothing is written."""
    fields = [JSON]
    scene = make_scene(
        send=lambda connection, _, number: connection.send(response(200, answer_of(number), *fields))
    )
    scene.flush()
    first = scene.keep(OLD)
    (key,) = keys_of(scene.redis)
    scene.redis.call("DEL", key)
    scene.redis.call("LPUSH", key, "theirs")
    before = scene.errors()
    fields.append(("Set-Cookie", "a=b"))
    for count in (1, 2):
        assert scene.ask_worker(OLD) != first
        assert scene.errors() == before | {"other": before["other"] + count}
    assert (scene.is_down(), entries_in_memory(scene.client)) == (False, 0)
    assert scene.redis.call("LRANGE", key, "0", "-1") == [b"theirs"]
    assert counted(scene.router, 'continuum_cache_redis_latency_seconds_count{operation="delete"}') == 0


def test_a_flush_costs_misses_and_brings_no_old_generation_back(make_scene):
    scene = make_scene()
    before_it = scene.keep(OLD)
    (key,) = [key for key in keys_of(scene.redis) if before_it in scene.redis.call("GET", key)]
    blob = scene.redis.call("GET", key)
    scene.client.ask("POST", "/admin/response-cache/invalidate", body=b'{"clear_all": true}')
    first = scene.keep(OLD)
    generation = scene.redis.call("HGETALL", GENERATIONS)
    assert generation
    scene.redis.call("FLUSHALL")
    scene.redis.call("SET", key, blob)  # whose generation is that of a Redis without any
    assert scene.ask_worker(OLD) not in (before_it, first)
    eventually(lambda: scene.redis.call("HGETALL", GENERATIONS) == generation, "the generation is lost")
    assert scene.wait_for_hit(OLD) not in (before_it, first)
    assert not scene.is_down()
    assert set(scene.errors().values()) == {0}


def test_a_failover_that_loses_an_invalidation_brings_no_response_of_before_back(make_scene, harness):
    scene = make_scene()
    invalidate = ("POST", "/admin/response-cache/invalidate")
    scene.client.ask(*invalidate, body=b'{"clear_all": true}')
    eventually(lambda: bool(scene.redis.call("HGETALL", GENERATIONS)))
    earlier = scene.redis.call("HGETALL", GENERATIONS)
    old = scene.keep(OLD)
    (key,) = [key for key in keys_of(scene.redis) if old in scene.redis.call("GET", key)]
    blob = scene.redis.call("GET", key)
    scene.client.ask(*invalidate, body=b'{"clear_all": true}')
    eventually(lambda: scene.redis.call("HGETALL", GENERATIONS) != earlier)
    # The new primary has the response, and has not heard of the invalidation.
    scene.redis.call("SET", key, blob)
    scene.redis.call("HSET", GENERATIONS, *earlier)
    assert scene.ask(OLD)[1] != old

    def repaired() -> bool:
        assert scene.ask(OLD)[1] != old
        return int(scene.redis.call("HGET", GENERATIONS, "*")) > int(earlier[1])

    eventually(repaired, "the generation stayed lower")
    assert scene.wait_for_hit(OLD) != old
    other = harness.client(shared(harness, scene, scene.engine, **PATIENT))
    assert ask(other, OLD).body != old
    assert not scene.is_down()
    assert set(scene.errors().values()) == {0}


def version(redis, key):
    """Of a later release."""
    blob = redis.call("GET", key)
    redis.call("SET", key, blob[:4] + b"\x02" + blob[5:])


def expired(redis, key):
    """By the router's clock; Redis keeps it for longer."""
    blob = redis.call("GET", key)
    eventually(lambda: redis.call("EXISTS", key) == 0)
    redis.call("SET", key, blob)


def too_large(redis, key):
    redis.call("SET", key, "x" * 1_200_000)


@pytest.mark.parametrize(
    ("damage", "counts", "errors"),
    [(version, 1, set()), (expired, 0, set()), (too_large, 0, {"other"})],
    ids=["version", "expired", "too large"],
)
def test_a_value_that_is_no_response_is_not_sent(make_scene, damage, counts, errors):
    scene = make_scene(
        response_cache_ttl_secs=3 if damage is expired else 600, response_cache_max_stream_buffer_size=1_000
    )
    scene.flush()
    first = scene.ask_worker(OLD)
    kept(scene.redis, 1)
    (key,) = keys_of(scene.redis)
    damage(scene.redis, key)
    deleted = 'continuum_cache_redis_latency_seconds_count{operation="delete"}'
    assert scene.ask_worker(OLD) != first
    if damage is not expired:
        eventually(lambda: counted(scene.router, deleted) == 1)
    assert counted(scene.router, "vllm_router_response_cache_corrupt_total") == counts
    assert {kind for kind, count in scene.errors().items() if count} == errors
    assert scene.wait_for_hit(OLD) != first
    assert not scene.is_down()
