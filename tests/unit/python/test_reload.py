"""python/vllm_router/reload.py: what a file of settings changes, whether it may, and what is said of it."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.rows import for_each_row
from vllm_router._watched_file import WatchedFile
from vllm_router.discovery.source import Difference
from vllm_router.launch_router import _loaded, _make_parser
from vllm_router.reload import HIDDEN, Change, Changed, Loaded, Reloads, SettingsFile, difference, readable
from vllm_router.router_args import FLAGS, RouterArgs
from vllm_router.server import _Changes
from vllm_router.settings.flag import LIVE

SECRET = "sk-of-the-workers"
NOTHING = Difference([], [], [], [])


def changed(old: dict[str, Any], new: dict[str, Any]) -> Change:
    return difference(RouterArgs(**old), RouterArgs(**new))


def names(change: Change) -> list[str]:
    return [one.flag.field for one in change.settings]


# Marks


@for_each_row("name", FLAGS)
def test_every_flag_says_what_a_change_needs(name: str) -> None:
    assert FLAGS[name].live in LIVE


def test_a_flag_without_effect_may_change_and_one_that_is_not_built_cannot() -> None:
    assert {flag.live for flag in FLAGS.values() if flag.no_effect} == {"request"}
    assert {flag.live for flag in FLAGS.values() if flag.not_built} == {"restart"}


# Differences


def test_equal_settings_differ_in_nothing() -> None:
    assert not changed({"port": 1, "worker_urls": ["http://a"]}, {"port": 1, "worker_urls": ["http://a"]})


def test_two_spellings_of_one_value_are_equal() -> None:
    assert not changed({"policy": "round-robin"}, {"policy": "round_robin"})
    assert not changed({"worker_urls": ["http://a:80/"]}, {"worker_urls": ["http://a:80/"]})


def test_a_difference_has_both_values() -> None:
    (one,) = changed({"retry_max_retries": 3}, {"retry_max_retries": 5}).settings
    assert (one.flag.field, one.old, one.new, one.needs_restart) == ("retry_max_retries", 3, 5, False)
    assert one.sentence == "retry_max_retries 3 -> 5"


def test_a_setting_that_is_gone_has_its_default() -> None:
    assert changed({"retry_max_retries": 3}, {}).sentence_with(NOTHING) == "retry_max_retries 3 -> 5"
    assert changed({"rate_limit_tokens_per_second": 3}, {}).sentence_with(NOTHING) == (
        "rate_limit_tokens_per_second 3 -> unset"
    )


def test_of_workers_it_is_said_what_the_fleet_does() -> None:
    change = changed({"worker_urls": ["http://a", "http://b"]}, {"worker_urls": ["http://b", "http://c"]})
    became = Difference(["http://c"], ["http://a"], [], ["http://d"])
    assert change.sentence_with(became) == "worker_urls +http://c -http://a (drains) -http://d (held)"
    assert change.sentence_with(NOTHING) == "worker_urls with the same fleet"
    back = changed({"worker_urls": ["http://a", "http://b"]}, {"worker_urls": ["http://b", "http://a"]})
    assert back.sentence_with(NOTHING) == "worker_urls in another order"


def test_many_workers_make_neither_a_long_line_nor_a_long_response(file: Callable[..., "File"]) -> None:
    it = file("worker_urls: [http://a]")
    urls = [f"http://w{number}" for number in range(4097)]
    it.became = Difference(urls, [], [], [])
    report = it.reload(f"worker_urls: [{', '.join(urls)}]")
    assert report.message.endswith("+http://w7 and 4089 more")
    said = json.loads(report.as_json())
    assert said["changes"][0]["to"] == said["workers"]["joined"] == [*urls[:10], "and 4087 more"]
    assert len(report.as_json()) < 2000


def test_a_secret_is_not_said() -> None:
    change = changed({"api_key": SECRET}, {"api_key": "another" + SECRET})
    assert change.sentence_with(NOTHING) == "api_key changed"
    assert SECRET not in repr(change.settings[0].as_json())


def test_what_is_secret_in_a_url_is_not_said() -> None:
    flag = FLAGS["api_key_validation_urls"]
    one = Changed(flag, [], [f"http://user:{SECRET}@auth/v?key={SECRET}"])
    assert SECRET not in one.sentence
    assert SECRET not in repr(one.as_json())
    assert SECRET not in repr(readable(FLAGS["prefill_urls"], [(f"http://u:{SECRET}@a", 1)]))


def test_a_change_that_needs_a_restart_says_so() -> None:
    change = changed({}, {"port": 1, "threads": 4, "retry_max_retries": 1})
    assert [one.flag.field for one in change.refused] == ["port", "threads"]


def test_health_checks_are_neither_begun_nor_ended() -> None:
    assert changed({}, {"health_check_interval_secs": 0}).refused
    assert changed({"health_check_interval_secs": 0}, {}).refused
    assert not changed({}, {"health_check_interval_secs": 1}).refused


# Reloads


class File:
    """A file of settings whose text a test changes, under a command line."""

    def __init__(self, tmp_path: Any, text: str = "", line: str = "") -> None:
        self.path = tmp_path / "router.yaml"
        self.line = ["--config", str(self.path), *line.split()]
        self.write(text)
        self.file = SettingsFile(str(self.path), self.load, self.load())
        self.now = 1_000_000_000.0
        self.reloads = Reloads(self.file, self.file.loaded.args, clock=lambda: self.now)
        self.applied: list[tuple[list[str], bool]] = []
        self.became = NOTHING
        self.error: Exception | None = None

    def write(self, text: str) -> None:
        self.path.write_text(text)

    def load(self, content: bytes | None = None) -> Loaded:
        class Parser(type(_make_parser())):  # type: ignore[misc]
            def error(self, message: str) -> None:
                raise ValueError(message)

        return _loaded(self.line, _make_parser(Parser), content)

    def apply(self, _args: RouterArgs, change: Change, dry_run: bool) -> Difference:
        if self.error is not None:
            raise self.error
        self.applied.append((names(change), dry_run))
        return self.became

    def reload(self, text: str, *, dry_run: bool = False) -> Any:
        self.write(text)
        return self.reloads.reload(self.apply, dry_run)

    def described(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self.reloads.description())["settings"][name])


@pytest.fixture
def file(tmp_path: Any) -> Callable[..., File]:
    return lambda text="", line="": File(tmp_path, text, line)


def test_what_the_file_says_is_in_force(file: Callable[..., File]) -> None:
    it = file("retry_max_retries: 3")
    report = it.reload("retry_max_retries: 4\nqueue_size: 7")
    assert (report.result, report.ok, report.generation) == ("applied", True, 2)
    assert report.message == "reloaded router.yaml: queue_size 100 -> 7, retry_max_retries 3 -> 4" or (
        report.message == "reloaded router.yaml: retry_max_retries 3 -> 4, queue_size 100 -> 7"
    )
    assert (it.reloads.args.retry_max_retries, it.reloads.args.queue_size) == (4, 7)


def test_the_command_line_still_comes_first(file: Callable[..., File]) -> None:
    it = file("retry_max_retries: 3\nqueue_size: 1", "--retry-max-retries 9")
    assert (
        it.reload("retry_max_retries: 4\nqueue_size: 2").message == "reloaded router.yaml: queue_size 1 -> 2"
    )
    assert it.reloads.args.retry_max_retries == 9


def test_nothing_new_is_nothing_done(file: Callable[..., File]) -> None:
    it = file("retry_max_retries: 3")
    report = it.reload("# a comment\nretry_max_retries: 3")
    assert (report.result, report.generation, it.applied) == ("unchanged", 1, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("retry_max_retries: [", "is not YAML"),
        ("retry_max_retries: many", "retry_max_retries is many; it is"),
        ("retry_max_retrys: 3", "did you mean retry_max_retries?"),
        ("retry_initial_backoff_ms: 60000", "retry_max_backoff_ms is 30000"),
        ("- 3", "must be a mapping"),
        ("mini_lb: true", "is not implemented"),
    ],
)
def test_a_mistake_changes_nothing(file: Callable[..., File], text: str, said: str) -> None:
    it = file("queue_size: 3")
    load = it.file.load

    def checked(content: bytes | None) -> Loaded:
        loaded = load(content)
        loaded.args._validate_router_args()
        return loaded

    it.reloads.file = dataclasses.replace(it.file, load=checked)
    report = it.reload(f"queue_size: 4\n{text}" if not text.startswith("-") else text)
    assert (report.result, report.ok, report.generation, it.applied) == ("invalid", False, 1, [])
    assert said in report.message
    assert report.message.startswith("router.yaml was not taken: ")
    assert report.message.endswith("; nothing was changed")
    assert it.reloads.args.queue_size == 3


def test_a_file_that_is_gone_changes_nothing(file: Callable[..., File]) -> None:
    it = file("queue_size: 3")
    it.path.unlink()
    report = it.reloads.reload(it.apply)
    assert report.result == "invalid"
    assert "cannot be read: No such file" in report.message


def test_one_change_that_needs_a_restart_refuses_all(file: Callable[..., File]) -> None:
    it = file("port: 30000")
    report = it.reload("port: 30001\nthreads: 3\nqueue_size: 7")
    assert (report.result, report.ok, it.applied) == ("refused", False, [])
    assert report.message == (
        "router.yaml was not taken: port 30000 -> 30001 and threads 0 -> 3 need a restart; "
        "nothing was changed"
    )
    assert it.reloads.args.queue_size == 100


def test_what_the_server_refuses_changes_nothing(file: Callable[..., File]) -> None:
    it = file()
    it.error = ValueError("no such worker")
    report = it.reload("queue_size: 7")
    assert (report.result, it.reloads.args.queue_size) == ("invalid", 100)
    assert report.message == "router.yaml was not taken: no such worker; nothing was changed"


def test_a_dry_run_changes_nothing(file: Callable[..., File]) -> None:
    it = file("queue_size: 3")
    report = it.reload("queue_size: 7", dry_run=True)
    assert (report.result, report.dry_run, it.applied) == ("would_apply", True, [(["queue_size"], True)])
    assert report.message == "would reload router.yaml: queue_size 3 -> 7"
    assert (it.reloads.args.queue_size, it.reloads.generation) == (3, 1)
    assert it.reload("port: 9", dry_run=True).result == "refused"


def test_workers_that_are_held_are_tried_again(file: Callable[..., File]) -> None:
    it = file("worker_urls: [http://a]")
    it.became = Difference([], [], [], ["http://a"])
    report = it.reload("worker_urls: []")
    assert report.message == "reloaded router.yaml: worker_urls -http://a (held)"
    again = it.reload("worker_urls: []")
    assert (again.result, again.workers.held) == ("unchanged", ["http://a"])
    assert again.message == "router.yaml has nothing new; worker_urls -http://a (held)"
    assert json.loads(again.as_json())["workers"]["held"] == ["http://a"]
    it.became = NOTHING
    last = it.reload("worker_urls: []")
    assert (last.result, last.message) == ("unchanged", "router.yaml has nothing new")
    assert it.applied == [(["worker_urls"], False), ([], False), ([], False)]
    it.reload("worker_urls: []")
    assert len(it.applied) == 3


def test_it_is_said_where_a_setting_comes_from_and_since_when(file: Callable[..., File]) -> None:
    it = file("queue_size: 3\nport: 1", "--port 2 --prometheus-port 0")
    assert it.described("port") == {
        "value": 2,
        "source": "command line",
        "reloaded": False,
        "since": "2001-09-09T01:46:40Z",
        "live": "restart",
    }
    assert it.described("queue_size")["source"] == "file"
    assert it.described("threads")["source"] == "default"
    it.now += 60
    it.reload("queue_size: 3\nmax_payload_size: 10")
    after = it.described("max_payload_size")
    assert (after["value"], after["source"], after["reloaded"]) == (10, "file", True)
    assert after["since"] == "2001-09-09T01:47:40Z"
    it.reload("queue_size: 3")
    assert it.described("max_payload_size")["source"] == "default"


def test_a_secret_is_not_described(file: Callable[..., File]) -> None:
    it = file(f"api_key: {SECRET}\nredis_url: redis://u:{SECRET}@h\n")
    assert it.described("api_key")["value"] == HIDDEN
    assert SECRET not in it.reloads.description()
    report = it.reload(f"api_key: {SECRET}2")
    assert report.result == "refused"
    assert SECRET not in report.message + report.as_json()
    report = it.reload(f"api_key: [{SECRET}")
    assert SECRET not in report.message + report.as_json()


def test_a_query_of_a_path_is_not_said(file: Callable[..., File]) -> None:
    it = file(f"health_check_endpoint: /health?token={SECRET}")
    assert it.described("health_check_endpoint")["value"] == "/health?..."
    report = it.reload(f"health_check_endpoint: /ping?token={SECRET}")
    assert report.message == "reloaded router.yaml: health_check_endpoint /health?... -> /ping?..."
    assert SECRET not in report.as_json() + it.reloads.description()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("queue_size: [", "router.yaml was not taken: it is not YAML: line "),
        ("queue_size: many", "router.yaml was not taken: queue_size is many; "),
        ("- 3", "router.yaml was not taken: it must be a mapping "),
        (None, "router.yaml was not taken: it cannot be read: No such file"),
    ],
)
def test_a_mistake_names_the_file_once(file: Callable[..., File], text: str | None, said: str) -> None:
    it = file()
    if text is None:
        it.path.unlink()
    else:
        it.write(text)
    message = it.reloads.reload(it.apply).message
    assert message.startswith(said)
    assert message.count("router.yaml") == 1


IN_REDIS = "response_cache: {enabled: true, backend: redis, redis: {url: redis://a}}"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "response_cache: {enabled: true}", "reloaded router.yaml: response_cache false -> true"),
        ("response_cache: {enabled: true}", "", "reloaded router.yaml: response_cache true -> false"),
        (
            "response_cache: {enabled: true}",
            "response_cache: {enabled: true, ttl: 10m, tenant_source: shared}",
            "reloaded router.yaml: response_cache_ttl_secs 300 -> 600, response_cache_tenant_source "
            "credential -> shared",
        ),
        (
            IN_REDIS,
            IN_REDIS.replace("enabled: true", "enabled: false"),
            "reloaded router.yaml: response_cache true -> false",
        ),
        (
            "response_cache: {enabled: true}",
            IN_REDIS,
            "router.yaml was not taken: redis_url changed and response_cache_backend memory -> redis need a "
            "restart; nothing was changed",
        ),
        (
            IN_REDIS,
            IN_REDIS.replace("redis://a", "redis://a, key_prefix: 'b:'"),
            "router.yaml was not taken: response_cache_redis_key_prefix cr:resp: -> b: needs a restart; "
            "nothing was changed",
        ),
        (
            "response_cache: {enabled: true}",
            "response_cache: {enabled: true, ttl: soon}",
            "router.yaml was not taken: response_cache.ttl is soon; write a number and one of ms, s, m, h, "
            'd, such as "5m" (1 s to 30 d); nothing was changed',
        ),
    ],
)
def test_all_of_the_response_cache_but_its_place_may_change(
    file: Callable[..., File], old: str, new: str, said: str
) -> None:
    it = file(old)
    assert it.reload(new).message == said


def test_what_was_read_already_is_not_read_again(file: Callable[..., File]) -> None:
    it = file("queue_size: 3")
    it.write("queue_size: 5")
    report = it.reloads.reload(it.apply, content=b"queue_size: 4")
    assert report.message == "reloaded router.yaml: queue_size 3 -> 4"
    assert "it is not UTF-8 text" in it.reloads.reload(it.apply, content=b"\xff").message


def test_a_watch_has_what_its_look_has_read(tmp_path: Any) -> None:
    path = tmp_path / "router.yaml"
    path.write_text("queue_size: 1")
    changes = _Changes(WatchedFile(str(path), "file of settings", "a file of settings"))
    assert (changes.look(1.0), changes.content) == (True, b"queue_size: 1")
    path.write_text("")
    assert [changes.look(2.0), changes.look(3.0)] == [False, True]
    assert changes.content == b"", "an empty file is read, too"
    assert (changes.look(4.0), changes.content) == (False, None)
    path.unlink()
    assert [changes.look(at) for at in (5.0, 6.0, 7.0)] == [False, True, False]
    assert changes.content is None


def test_without_a_file_there_is_nothing_to_reload() -> None:
    reloads = Reloads(None, RouterArgs(queue_size=3))
    report = reloads.reload(lambda *_: pytest.fail("nothing to apply"))
    assert (report.result, report.ok) == ("unchanged", True)
    assert "was not started with --config" in report.message
    described = json.loads(reloads.description())
    assert described["file"] is None
    assert described["settings"]["queue_size"]["source"] == "program"


def test_where_the_settings_of_a_command_without_a_file_come_from() -> None:
    reloads = Reloads(None, RouterArgs(queue_size=3), {"queue_size": "command line"})
    settings = json.loads(reloads.description())["settings"]
    assert (settings["queue_size"]["source"], settings["port"]["source"]) == ("command line", "default")


def test_whatever_is_raised_the_settings_stay(file: Callable[..., File]) -> None:
    it = file("queue_size: 3")
    it.error = RuntimeError("at http://user:sk-1@host")
    report = it.reload("queue_size: 7")
    assert (report.result, it.reloads.args.queue_size) == ("invalid", 3)
    assert "RuntimeError: at http" in report.message
    assert "sk-1" not in report.message


def test_a_setting_that_will_do_nothing_is_warned_of_once(file: Callable[..., File]) -> None:
    it = file("queue_size: 3")
    report = it.reload("allow_request_overrides: true")
    (sentence,) = report.warnings
    assert sentence.startswith("--allow-request-overrides has no effect")
    assert json.loads(report.as_json())["warnings"] == [sentence]
    assert it.reload("allow_request_overrides: true\nqueue_size: 4").warnings == ()


def test_off_is_off(file: Callable[..., File]) -> None:
    it = file("config_reload: 'off'\nqueue_size: 3")
    report = it.reload("config_reload: 'off'\nqueue_size: 7")
    assert (report.result, it.applied) == ("unchanged", [])
    assert "--config-reload is off" in report.message


def test_the_report_is_json(file: Callable[..., File]) -> None:
    it = file("worker_urls: [http://a]")
    it.became = Difference(["http://b"], [], [], ["http://a"])
    report = json.loads(it.reload("worker_urls: [http://b]\nqueue_size: 7").as_json())
    assert report["result"] == "applied"
    assert report["workers"] == {"joined": ["http://b"], "left": [], "held": ["http://a"]}
    assert {"setting": "queue_size", "from": 100, "to": 7, "live": "request"} in report["changes"]
