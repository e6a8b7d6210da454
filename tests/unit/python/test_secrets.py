"""Errors and warnings about settings: they say what is wrong, and nothing that may be secret."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.rows import for_each_row
from vllm_router import Router
from vllm_router._messages import show
from vllm_router._secrets import shown_urls
from vllm_router.launch_router import main, parse_router_args
from vllm_router.router_args import FLAGS, RouterArgs

URL_FLAGS = sorted(name for name, flag in FLAGS.items() if flag.urls)


def said_by_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says of a mistake, in one line and with status 2."""
    try:
        with patch("vllm_router.launch_router.Router", create=True) as router:  # should it be accepted
            router.from_args.side_effect = AssertionError("the router has started")
            status = main(arguments)
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr().err
    assert status == 2
    assert said.startswith("vllm-router: error: ")
    assert "Traceback" not in said
    return said


def said_of_file(text: str | bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    file = tmp_path / "f.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return said_by_command(["--config", str(file)], capsys)


# Which flags


def test_every_flag_that_takes_a_secret_or_urls_is_marked() -> None:
    assert [name for name, flag in FLAGS.items() if flag.secret] == ["api_key", "redis_url", "peer_sync"]
    assert {
        name for name, flag in FLAGS.items() if re.search(r"URL|ORIGIN|HOST:PORT", flag.kind.metavar)
    } == {*URL_FLAGS, "redis_url", "peer_sync", "vllm_discovery_address"}  # the last one is the router's own
    # By name: what sounds like a secret and is none, each a number, a switch, a place or a list of URLs.
    others = {name for name in FLAGS if re.search(r"key|token|secret|password", name)} - {"api_key"}
    assert others == {
        "admin_api_key_file",
        "api_key_validation_cache_secs",
        "api_key_validation_timeout_secs",
        "api_key_validation_urls",
        "client_api_key_file",
        "continue_max_tokens",
        "continue_rerun_tokens",
        "hash_key_fallback",
        "hash_key_headers",
        "hash_key_order",
        "holdout_secret_file",
        "logit_prefill_tokens",
        "lora_load_tokens",
        "peer_sync_key_path",
        "peer_sync_password_file",
        "peer_sync_secret_file",
        "pd_bypass_queued_tokens",
        "pd_bypass_uncached_tokens",
        "peer_sync_stride_tokens",
        "prefix_token_count",
        "rate_limit_tokens_per_second",
        "redis_key_path",
        "redis_password_file",
        "response_cache_integrity_key_file",
        "response_cache_key_ignore",
        "response_cache_key_scheme",
        "response_cache_redis_key_prefix",
        "tls_key_path",
        "tokenize",
        "tokenize_timeout_ms",
        "tokenizer_path",
        "worker_key_path",
    }


# The key


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("api-key: [SECRETONE, SECRETTWO]", "api_key is a list of 2; "),
        ("api-key: {SECRETA: SECRETB}", "api_key is a mapping of 1 names; "),
        ("api-key: 12345678", "api_key is a number; it is the bearer key sent to workers and must be a text"),
        ("api-key: 12345678", "; in YAML, put it in quotes"),
        ("api-key: 2024-01-01", "api_key is a date; "),
        ("api-key: true", "api_key is true or false; "),
        ("api-key: 2024-13-45", "f.yaml is not YAML: line 1, column 10: this looks like a number or a date"),
        ("api-key: 'SECRET\nport: 1", "f.yaml is not YAML: line 2, column 8: found unexpected end of stream"),
        ("api-key: *SECRET", "f.yaml is not YAML: line 1, column 10: found undefined alias ..."),
        ("api-key: !SECRET x", "line 1, column 10: could not determine a constructor for the tag ..."),
        ("port: 1\napi-key:SECRET\nhost: x", "f.yaml is not YAML: line 3, column "),
        ("{api-key:SECRET}", "f.yaml: api-key... is not a known setting"),
        ("api-key: SECRET\x07", "line 1, column 16: a control character, which YAML does not allow"),
        ("port: {api-key: SECRET}", "port is api-key=...; it is the HTTP port"),
        ("routing: [api-key: SECRET]", "routing is api-key=...; it is a mapping"),
    ],
)
def test_a_wrong_key_in_yaml_is_not_shown(
    text: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = said_of_file(text, tmp_path, capsys)
    assert what in said
    assert not re.search("SECRET|12345678|2024", said)


@pytest.mark.parametrize(
    "value", [["SECRETA"], 12345678, b"SECRETA", {"a": "SECRETA"}, {"SECRETA"}, "SECRETA\n"]
)
def test_a_wrong_key_in_python_is_not_shown(value: Any) -> None:
    for use in (
        lambda: RouterArgs(api_key=value)._validate_router_args(),
        lambda: RouterArgs.from_dict({"api-key": value}),
        lambda: RouterArgs(api_key=value).server_options(),
        lambda: Router(api_key=value),
        lambda: Router().serve(api_key=value),
    ):
        with pytest.raises(ValueError, match="api_key is a") as refused:
            use()
        assert not re.search("SECRET|12345678", str(refused.value))


def test_the_beginning_of_a_url_without_quotes_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        ["--cors-allowed-origins=http://SECRET", "SECRET@h/p"],
        ["--api-key-validation-urls=http://0000", "0000@h/p"],
        ["--prefill", "http://SECRET", "SECRET@h/p"],
        ["--decode", "https://h/?token=SECRET", "SECRET#"],
    ):
        said = said_by_command(["--port", "1", *line], capsys)
        assert "SECRET" not in said
        assert "0000" not in said


def test_the_rest_of_a_key_without_quotes_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        ["--api-key", "my", "SECRET"],
        ["--api_key=my", "-SECRET"],
        ["--api-key", "my", "x", "SECRET"],
    ):
        said = said_by_command(["--port", "1", *line, "--port", "2"], capsys)
        assert "--api-key takes one value, and another word follows it; put the value in quotes" in said
        assert "SECRET" not in said
    said = said_by_command(["--api-key", "x", "--polcy", "random"], capsys)
    assert "--polcy is not a flag of vllm-router; did you mean --policy?" in said
    assert "stray is neither a flag nor a command" in said_by_command(["--port", "1", "stray"], capsys)


def test_the_settings_as_python_shows_them_have_no_key() -> None:
    assert "SECRET" not in repr(RouterArgs(api_key="SECRET"))


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("SEC\r\nX-Injected: yes", r"it has a line break \(\\r\) at position 4, "),
        ("SECRET\n", r"it has a line break \(\\n\) at position 7, "),
        ("SEC\tRET", r"it has a control character \(\\t\) at position 4, "),
        ("\x7fSECRET", r"it has a control character \(\\x7f\) at position 1, "),
        ("SEC\x85RET", r"it has a control character \(\\x85\) at position 4, "),
        ("SEC\udcffRET", "it has a byte that is not UTF-8 at position 4, "),
        ("SEC\0RET", "NUL"),
        (" SECRET", "a text without leading or trailing blanks, and it has one at position 1: remove it"),
        ("SECRET ", "a text without leading or trailing blanks, and it has one at position 7: remove it"),
    ],
)
def test_a_key_that_would_end_its_header_is_refused(
    key: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    uses = [lambda: Router(api_key=key), lambda: Router().serve(api_key=key)]
    for use in uses:
        with pytest.raises(
            ValueError, match=f"^api_key is a text of {len(key)} characters; .*{what}"
        ) as refused:
            use()
        assert "SEC" not in str(refused.value)
    said = said_by_command(["--api-key", key], capsys)
    assert re.search(what, said)
    assert "SEC" not in said


def test_a_block_of_yaml_has_a_line_break_at_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = said_of_file("api-key: |\n  SECRET\n", tmp_path, capsys)
    assert "a line break (\\n) at position 7" in said
    assert "in YAML write the text in quotes on one line" in said
    assert RouterArgs.from_yaml("api-key: |-\n  SECRET\n").api_key == "SECRET"
    assert RouterArgs.from_yaml("api-key: two words, é\n").api_key == "two words, é"


# The URL of Redis, which may have a password


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:SECRET@h:99999",
        "http://u:SECRET@h",
        "redis://u:SEC/RET@h",
        "redis://u:SEC RET@h",
        "u:SECRET@h",
        "redis://:SECRET@h/99999",
    ],
)
def test_the_password_for_redis_is_not_shown(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [
        f"redis-url: '{url}'",
        f"redis-url: ['{url}']",
        f"peer_sync: '{url}'",
        f"peer-sync: ['{url}']",
        f"response_cache: {{redis: {{url: '{url}'}}}}",
        f"response_cache: {{redis: {{url: '{url}', tls: true}}}}",
        f"response_cache: {{redis: '{url}'}}",
        f"response_cache: {{redis: {{tls: '{url}'}}}}",
        f"response_cache: {{redis: {{'{url}': 1}}}}",
    ]
    for text in texts:
        said = said_of_file(text, tmp_path, capsys)
        assert re.search("redis|peer_sync", said), text
        assert not re.search("SEC|RET", said), text


@pytest.mark.parametrize(
    ("name", "remedy"), [("redis_url", "--redis-password-file"), ("peer_sync", "--peer-sync-password-file")]
)
def test_the_command_line_takes_no_password_for_redis(
    name: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = said_by_command(["--" + name.replace("_", "-"), "redis://u:SECRET@h"], capsys)
    assert f"a URL without a password on the command line; set {remedy}" in said
    assert "SECRET" not in said
    args = RouterArgs.from_dict({name: "redis://u:SECRET@h"})
    assert "SECRET" not in repr(args)
    assert "SECRET" not in str(args.warnings())


# What else ends in a header or in a request line


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (
            {"health_check_endpoint": "/health HTTP/1.1\r\nX: y"},
            "the character at position 8 is none of these",
        ),
        ({"health_check_endpoint": "/h#x"}, "the character at position 3 is none"),
        (
            {"request_id_headers": ["x-id", "x\r\ny"]},
            "one of 4 characters has another at position 2; remove it",
        ),
        ({"request_id_headers": ["x:y"]}, "has another at position 2"),
        ({"hash_key_headers": ["x y"]}, "has another at position 2"),
        ({"cors_allowed_origins": ["https://a\r\nX: y"]}, "must be origins like"),
        ({"cors_allowed_origins": ["https://u:SECRET@a"]}, "must be origins like"),
        ({"worker_urls": ["http://a/\r\nX: y"]}, "must be URLs like http://host:8000"),
        ({"api_key_validation_urls": ["http://a/\r\nX: y"]}, "the character at position 10 of one is none"),
        ({"api_key_validation_urls": ["http://a/v#x"]}, "the character at position 11 of one is none"),
    ],
)
def test_what_would_end_a_header_or_a_request_line_is_refused(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(settings))} is ") as refused:
        RouterArgs(**settings)._validate_router_args()
    assert what in str(refused.value)
    assert "\r" not in str(refused.value)
    assert "SECRET" not in str(refused.value)


# URLs


@for_each_row(
    ("text", "shown"),
    [
        ("http://a:8000", "http://a:8000"),
        ("http://a:8000/v1@2 https://[::1]:1@0", "http://a:8000/v1@2 https://[::1]:1@0"),
        ("http://u:SECRET@a:1", "http://...@a:1"),
        ("HTTPS://SECRET@a/p x", "https://...@a/p x"),
        ("http://u:SEC/RET?SE@C RET,SEC@a http://b:1@2", "http://...@a http://b:1@2"),
        ("http://b http://u:SECRET@a?SECRET", "http://...@..."),
        ("u:SECRET@a:1", "...@a:1"),
        ("http://u:SECRET@2", "http://...@2"),
        ("http://a/v?token=SECRET", "http://a/..."),
        ("http://a:SECRET", "http://a:..."),
        ("http://u:0000", "http://u:..."),  # no port, so perhaps the password before a blank
        ("http://0000", "http:..."),  # no host
        ("http://SÉCRET", "http:..."),
        ("secret://u:SECRET@a", "...@a"),
    ],
)
def test_urls_are_shown_without_passwords_and_queries(text: str, shown: str) -> None:
    assert shown_urls(text) == shown


@pytest.mark.parametrize("name", URL_FLAGS)
@pytest.mark.parametrize(
    "url", ["http://u:SECRET@h:1", "grpc://u:SECRET@h", "ftp://SECRET@h", "http://u:SEC/RET@h", "u:SECRET@h"]
)
def test_no_flag_shows_the_password_of_a_url(name: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    flag = FLAGS[name]
    said = ""
    if flag.on_command_line:
        said += said_by_command([flag.spelling, *([url, "x"] if name == "prefill_urls" else [url])], capsys)
    for value in (f"[['{url}', x]]", f"['{url}']", f"'{url}'", f"{{'{url}': 1}}", f"[{{a: '{url}'}}]"):
        try:
            RouterArgs.from_yaml(f"{name}: {value}", "f.yaml")._validate_router_args()
        except ValueError as error:
            said += str(error)
    assert name in said or flag.spelling in said
    assert not re.search("SEC|RET", said)


def test_the_environment_s_urls_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("API_KEY_VALIDATION_URLS", "http://a/v, http://u:SECRET@h/v")
    said = said_by_command(["--port", "0"], capsys)
    assert "api_key_validation_urls is http://...@h/v; " in said
    assert "SECRET" not in said
    monkeypatch.delenv("API_KEY_VALIDATION_URLS")
    (tmp_path / ".env").write_text("API_KEY_VALIDATION_URLS=http://u:SECRET@h/v\n")
    monkeypatch.chdir(tmp_path)
    assert "SECRET" not in said_by_command(["--port", "0"], capsys)


def test_a_url_in_the_wrong_place_is_shown_without_its_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert "http://...@h is not a flag; pass worker URLs" in said_by_command(["http://u:SECRET@h"], capsys)
    assert "policy is http://...@h; " in said_by_command(["--policy", "http://u:SECRET@h"], capsys)
    for urls in (["http://u:SECRET@h"], ["grpc://u:SECRET@h"], ["http://u:SEC/RET@h"], "http://u:SECRET@h"):
        with pytest.raises((TypeError, ValueError)) as refused:
            Router(worker_urls=urls)
        assert not re.search("SEC|RET", str(refused.value))


@pytest.mark.parametrize(
    "url",
    [
        "http://a",
        "https://a.b:1/v?x=y",
        "HTTP://10.0.0.1:65535",
        "http://[::1]:80/v@x",
        "http://a?x",
        "http://a.",
    ],
)
def test_a_url_to_ask_about_keys(url: str) -> None:
    RouterArgs(api_key_validation_urls=[url])._validate_router_args()
    Router().serve(api_key_validation_urls=[url]).stop()


@for_each_row(
    "url",
    [
        "a",
        "ftp://a",
        "http://",
        "http://a:0",
        "http://a:65536",
        "http://a:x",
        "http://10.0.0",
        "http://a..b",
        "http://.a",
        "http://[::1",
        "http://[zz]",
        "http://a:1@2",
        "http://" + "a" * 254,
        "http://a/" + "b" * 2050,
    ],
)
def test_what_is_no_url_to_ask_about_keys_is_refused_before_the_core_sees_it(url: str) -> None:
    with pytest.raises(ValueError, match=r"^api_key_validation_urls is "):
        RouterArgs(api_key_validation_urls=[url])._validate_router_args()


# Bounds of YAML


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "port: " + "[" * 3000 + "]" * 3000,
            "f.yaml, line 1, column 38: nested deeper than 32 levels; settings",
        ),
        ("[" * 3000, "nested deeper than 32 levels"),
        ("a: " * 3000, "is not YAML: line 1, column "),
        ("\n".join(" " * n + "a:" for n in range(1000)), "f.yaml, line 33, column "),
        (
            "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 200)),
            "nested deeper than",
        ),
        (
            "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
            + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)),
            "f.yaml, line 6, column 10: more than 100000 values, which is the limit (an alias counts as all",
        ),
        ("port: &a [*a]", "f.yaml, line 1, column 11: an alias (*) refers to a value that contains it"),
        ("policy: " + "x" * 2**20, "f.yaml has more than 1048576 bytes, which is the limit for a file"),
        ("\n".join(["port:"] * 40_000), "f.yaml: port appears twice; keep one of them"),
        ("port: " + "9" * 5000, "this looks like a number or a date, but is not valid; put it in quotes"),
        ("port: [[[[[[[[1]]]]]]]]", "port is a list of 1 items; "),
    ],
    ids=range(11),
)
def test_yaml_that_no_settings_need_is_refused_in_a_sentence(
    text: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = said_of_file(text, tmp_path, capsys)
    assert what in said
    assert len(said) < 500


def test_a_file_without_an_end_is_read_up_to_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert "/dev/zero has more than 1048576 bytes" in said_by_command(["--config", "/dev/zero"], capsys)


def test_aliases_and_many_workers_are_fine(tmp_path: Path) -> None:
    args = RouterArgs.from_yaml("client-api-key-file: &file a\nadmin-api-key-file: *file\n")
    assert args.admin_api_key_file == "a"
    urls = [f"http://10.0.{n // 250}.{n % 250}:8000" for n in range(2000)]
    file = tmp_path / "f.yaml"
    file.write_text("worker-urls:\n" + "".join(f"  - {url}\n" for url in urls))
    assert parse_router_args(["--config", str(file)]).worker_urls == urls


def test_values_that_are_deep_are_shown_by_their_size() -> None:
    deep: list[Any] = [1]
    for _ in range(5000):
        deep = [deep]
    assert show(deep) == "a list of 1 items"


def test_the_command_itself_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("port: " + "[" * 3000 + "]" * 3000)
    command = [sys.executable, "-m", "vllm_router.launch_router", "--config", "f.yaml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
