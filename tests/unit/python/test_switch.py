"""What scripts, files and frameworks written for other routers have, and what becomes of it here.

The names are those of vllm-project/router 0.1.17, of smg, of production-stack and of Dynamo.
"""

import argparse
import importlib
import logging
import re
import subprocess
import sys
import threading
import urllib.request
import warnings
from pathlib import Path
from unittest.mock import MagicMock, patch

import pytest

import vllm_router
from vllm_router import PolicyType, Router
from vllm_router import launch_router as command
from vllm_router._dotenv import dotenv_value
from vllm_router._messages import nearest_name
from vllm_router.launch_router import parse_router_args
from vllm_router.router_args import FLAGS, RouterArgs
from vllm_router.settings.foreign_flags import KNOWN_ELSEWHERE
from vllm_router.settings.names import FLAG_SIMILARITY, unknown_name
from vllm_router.settings.reference_flags import REFERENCE_FLAGS

# .env


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The validation URLs that a start in a directory with this `.env` asks for."""

    def start(text, directory="."):
        (tmp_path / ".env").write_text(text, encoding="utf-8")
        place = tmp_path / directory
        place.mkdir(exist_ok=True)
        monkeypatch.chdir(place)
        monkeypatch.delenv("API_KEY_VALIDATION_URLS", raising=False)
        with patch("vllm_router.launch_router.Router", create=True) as router:
            router.from_args = MagicMock()
            command.launch_router(RouterArgs())
        (args,) = router.from_args.call_args.args
        return args.api_key_validation_urls

    return start


def test_a_number_sign_within_quotes_begins_no_comment(tmp_path):
    (tmp_path / ".env").write_text('NAME="http://a/v?x=#1" # a\n', encoding="utf-8")
    assert dotenv_value("NAME", tmp_path) == ("http://a/v?x=#1", tmp_path / ".env")


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("API_KEY_VALIDATION_URLS=http://a/v,http://b/v\n", ["http://a/v", "http://b/v"]),
        (
            "# keys\nexport API_KEY_VALIDATION_URLS = 'http://a/v, http://b/v'  # both\n",
            ["http://a/v", "http://b/v"],
        ),
        ('OTHER=1\nAPI_KEY_VALIDATION_URLS="http://a/v?x=1" # a', ["http://a/v?x=1"]),
        ("API_KEY_VALIDATION_URLS=http://a/v # one\n", ["http://a/v"]),
        ("#API_KEY_VALIDATION_URLS=http://a/v\nMY_API_KEY_VALIDATION_URLS=http://b\n", []),
        ("API_KEY_VALIDATION_URLS=\n", []),
    ],
)
def test_a_dotenv_file_asks_for_key_validation_as_it_did_there(asked, text, urls):
    """mending row 25: the file was not read, so that a switch turned authorization off without a word."""
    assert asked(text) == urls


def test_the_dotenv_file_of_a_directory_above_counts_and_the_log_says_so(asked, caplog, tmp_path):
    """mending row 25: where the setting comes from is said."""
    with caplog.at_level(logging.WARNING, "vllm_router"):
        assert asked("API_KEY_VALIDATION_URLS=http://a/v", "service") == ["http://a/v"]
    assert f"API_KEY_VALIDATION_URLS is taken from {tmp_path / '.env'}" in caplog.text


def test_the_environment_and_the_flag_come_before_the_dotenv_file(monkeypatch, tmp_path):
    (tmp_path / ".env").write_text("API_KEY_VALIDATION_URLS=http://file/v")
    monkeypatch.chdir(tmp_path)
    with patch("vllm_router.launch_router.Router", create=True) as router:
        monkeypatch.setenv("API_KEY_VALIDATION_URLS", "http://environment/v")
        command.launch_router(RouterArgs())
        monkeypatch.setenv("API_KEY_VALIDATION_URLS", "")
        command.launch_router(RouterArgs())
        monkeypatch.delenv("API_KEY_VALIDATION_URLS")
        command.launch_router(RouterArgs(api_key_validation_urls=["http://flag/v"]))
    seen = [call.args[0].api_key_validation_urls for call in router.from_args.call_args_list]
    assert seen == [["http://environment/v"], [], ["http://flag/v"]]


@pytest.mark.parametrize("text", ["API_KEY_VALIDATION_URLS='http://a/v\n", b"API_KEY_VALIDATION_URLS=\xff"])
def test_a_dotenv_file_that_cannot_be_read_stops_the_start(monkeypatch, tmp_path, text):
    """mending row 25: a router without the keys that somebody asked for is worse than none."""
    (tmp_path / ".env").write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("API_KEY_VALIDATION_URLS", raising=False)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / ".env"))):
        command.launch_router(RouterArgs())


# Sessions


def test_how_long_sessions_stay_may_be_said_in_the_environment(monkeypatch, caplog):
    """mending row 24: the variable that vllm-project/router reads was ignored without a word."""
    with patch("vllm_router.launch_router.Router", create=True) as router:
        monkeypatch.setenv("VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S", " 60 ")
        command.launch_router(RouterArgs())
        assert "taken from VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S" in caplog.text
        command.launch_router(RouterArgs(session_ttl_secs=30))
        monkeypatch.setenv("VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S", "")
        command.launch_router(RouterArgs())
        monkeypatch.delenv("VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S")
        command.launch_router(RouterArgs())
        for wrong in ("0", "2h", "1e3"):
            monkeypatch.setenv("VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S", wrong)
            with pytest.raises(ValueError, match=f"{wrong}.*between 1 and 31536000"):
                command.launch_router(RouterArgs())
    seen = [call.args[0].session_ttl_secs for call in router.from_args.call_args_list]
    assert seen == [60, 30, 7200, 7200]


# One distribution's name


def test_the_version_is_above_those_of_the_router_of_the_same_name():
    """mending row 21: `pip install "vllm-router>=0.1.14"` replaced 0.1.0 by the other distribution."""
    assert tuple(int(part) for part in vllm_router.__version__.split(".")) >= (0, 2, 0)
    from vllm_router.version import __version__

    assert __version__ == vllm_router.__version__


@pytest.mark.parametrize(
    "foreign",
    ["vllm_router_rs.abi3.so", "vllm_router-0.1.17.dist-info/METADATA", "vllm_router/app.py"],
)
def test_files_of_another_distribution_are_named_at_import(tmp_path, foreign):
    """mending row 21: half of each is a mixture that fails far from its cause."""
    package = tmp_path / "vllm_router"
    package.mkdir()
    for file in Path(vllm_router.__file__).parent.iterdir():
        if file.is_file():
            (package / file.name).symlink_to(file.resolve())
    (tmp_path / f"vllm_router-{vllm_router.__version__}.dist-info").mkdir()

    def said():
        run = [sys.executable, "-c", "import vllm_router"]
        done = subprocess.run(
            run, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(tmp_path)}
        )
        return done.stderr

    assert said() == ""
    file = tmp_path / foreign
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    assert f"mixed with files of another distribution named vllm-router: {tmp_path}" in said()
    assert foreign.split("/METADATA")[0] in said()


# Names to import


def test_names_that_frameworks_import_are_there():
    """mending row 22: modules and names of vllm-project/router that were missing."""
    for module, names in {
        "vllm_router_rs": ("PolicyType", "Router"),
        "vllm_router.version": ("__version__",),
        "vllm_router.launch_router": ("Router", "RouterArgs", "launch_router", "main", "parse_router_args"),
        "vllm_router.mini_lb": ("MiniLoadBalancer", "maybe_wrap_ipv6_address"),
        "vllm_router.router": ("PolicyType", "Router", "RouterArgs", "policy_from_str"),
    }.items():
        loaded = importlib.import_module(module)
        assert [name for name in names if not hasattr(loaded, name)] == []
    assert command.Router is Router
    assert importlib.import_module("vllm_router_rs").PolicyType is PolicyType
    with pytest.raises(AttributeError, match="no attribute 'Ruter'"):
        _ = command.Ruter


def test_the_command_starts_the_router_that_a_test_has_put_in_its_place():
    """mending row 22: the suites of frameworks patch this name."""
    with patch("vllm_router.launch_router.Router") as router:
        command.launch_router(RouterArgs(worker_urls=["http://a:1"]))
    router.from_args.assert_called_once()
    router.from_args.return_value.start.assert_called_once_with()


def serving(router, monkeypatch):
    """The URL at which start() serves, and what it makes of a request."""
    served = {}
    ready = threading.Event()

    def run(server, _announcement):
        served["url"] = server.url
        ready.set()
        with urllib.request.urlopen(server.url + "/liveness") as response:
            served["status"] = response.status
        server.stop(0)
        return 0

    monkeypatch.setattr("vllm_router.server.Server.run", run)
    router.start()
    assert ready.is_set()
    return served


def test_a_router_with_host_and_port_serves_there(monkeypatch):
    router = Router(worker_urls=["http://a:1"], policy=PolicyType.Random, host="127.0.0.1", port=0)
    served = serving(router, monkeypatch)
    assert served["status"] == 200
    assert served["url"].startswith("http://127.0.0.1:")
    with pytest.raises(ValueError, match="port is 99999"):
        Router(port=99999)
    with pytest.raises(ValueError, match="not implemented"):
        Router(enable_igw=True)
    assert Router(enable_igw=False, prefill_urls=None).policy == "auto"


def test_the_native_module_s_router_takes_every_setting_and_serves(monkeypatch):
    from vllm_router_rs import Router as Native

    settings = {name: getattr(RouterArgs(), name) for name in FLAGS}
    for name in ("worker_urls", "policy", "host", "port"):
        del settings[name]
    router = Native(["http://a:1"], PolicyType.RoundRobin, "127.0.0.1", 0, **settings)
    assert serving(router, monkeypatch)["status"] == 200
    nothing = dict.fromkeys(
        ["prefill_urls", "decode_urls", "request_id_headers", "api_key", "prefill_policy"]
    )
    assert Native(worker_urls=[], **nothing)._router.policy == "round_robin"
    assert Native([])._router._args.port == 3001
    with pytest.raises(TypeError, match=r"did you mean queue_size\?"):
        Native([], queue_sizes=1)


def test_the_balancer_for_debugging_says_that_it_is_not_built():
    from vllm_router.mini_lb import MiniLoadBalancer, maybe_wrap_ipv6_address

    assert [maybe_wrap_ipv6_address(host) for host in ("::1", "10.0.0.1", "host")] == [
        "[::1]",
        "10.0.0.1",
        "host",
    ]
    with pytest.raises(ValueError, match="the mini load balancer is not implemented"):
        MiniLoadBalancer(RouterArgs())


# Parsers of others


def engine_parser():
    parser = argparse.ArgumentParser(prog="serve")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--block-size", type=int, default=None)
    parser.add_argument("--threads-of-mine", dest="threads", default="many")
    return parser


def test_flags_that_a_parser_has_already_are_left_to_it():
    """mending row 27: `--seed` and `--block-size` of an engine's parser were an ArgumentError."""
    parser = engine_parser()
    RouterArgs.add_cli_args(parser)
    known = parser.parse_args(["--seed", "3", "--policy", "random", "--port", "0", "--queue-size", "9"])
    assert (known.seed, known.block_size, known.threads) == (3, None, "many")
    args = RouterArgs.from_cli_args(known)
    assert (args.seed, args.block_size, args.threads) == (None, 16, RouterArgs().threads)
    assert (args.policy, args.port, args.queue_size) == ("random", 0, 9)
    args._validate_router_args()
    left_out = parser.format_help().split("left out")[1]
    assert {"--seed", "--block-size", "--threads"} <= set(re.findall(r"--[a-z-]+", left_out))


def test_a_parser_without_such_flags_gets_them_all():
    """mending row 27: nothing is left out where nothing is in the way."""
    parser = argparse.ArgumentParser()
    RouterArgs.add_cli_args(parser)
    assert "left out" not in parser.format_help()
    assert RouterArgs.from_cli_args(parser.parse_args(["--seed", "3"])).seed == 3


def test_the_flags_of_the_reference_are_complete_and_conflict_as_they_do_there():
    """mending row 27: a parser that has room for vllm-project/router's flags gets each of them."""
    parser = engine_parser()
    RouterArgs.add_cli_args(parser)
    known = {name for action in parser._actions for name in action.option_strings}
    assert known >= REFERENCE_FLAGS
    assert len(REFERENCE_FLAGS) == 71
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy")
    with pytest.raises(argparse.ArgumentError):
        RouterArgs.add_cli_args(parser)


def test_prefixed_flags_are_in_nobody_s_way():
    """mending row 27: with the prefix nothing is left out."""
    parser = engine_parser()
    RouterArgs.add_cli_args(parser, use_router_prefix=True)
    known = parser.parse_args(["--seed", "3", "--router-seed", "4", "--router-block-size", "32"])
    args = RouterArgs.from_cli_args(known, use_router_prefix=True)
    assert (args.seed, args.block_size) == (4, 32)


# Names of others


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--client-cert-path", "--worker-cert-path"),
        ("--static-backends", "--worker-urls"),
        ("--routing-logic", "--policy"),
        ("--router-mode", "--policy"),
        ("--assignment-mode", "--policy manual"),
    ],
)
def test_a_flag_of_another_router_is_answered_with_its_meaning_here(flag, says, capsys):
    """mending row 28: the nearest name was suggested, which meant another thing."""
    with pytest.raises(SystemExit):
        parse_router_args([flag, "x"])
    said = capsys.readouterr().err
    assert says in said
    assert "did you mean" not in said
    with pytest.raises(ValueError, match=re.escape(says)):
        RouterArgs.from_yaml(f"{flag[2:].replace('-', '_')}: x")


def test_what_is_said_of_flags_of_others_names_flags_that_there_are():
    """mending row 28: a remedy that does not exist is none."""
    known = {name for flag in FLAGS.values() for name in flag.spellings} | {"config"}
    for name, text in KNOWN_ELSEWHERE.items():
        assert name.replace("_", "-") not in known
        assert set(re.findall(r"--([a-z][a-z-]+)", text)) <= known, name


def test_a_name_is_suggested_only_where_it_is_very_like():
    """mending row 28: flags share words; a guess among them is worse than none."""
    known = [name for flag in FLAGS.values() for name in flag.spellings]
    unlike = [
        "client-cert-path",
        "static-backends",
        "ca-cert-path",
        "session-key",
        "max-waiting-requests",
    ]
    assert [name for name in unlike if nearest_name(name, known, FLAG_SIMILARITY)] == []
    for typed, meant in {
        "polcy": "policy",
        "worker-url": "worker-urls",
        "prometeus-port": "prometheus-port",
        "cache-treshold": "cache-threshold",
        "max-concurent-requests": "max-concurrent-requests",
        "virtual_node": "virtual-nodes",
    }.items():
        assert nearest_name(typed, known, FLAG_SIMILARITY) == meant
    assert (
        unknown_name("my_own_flag")
        == "my_own_flag is not a known setting; docs/reference/cli.md lists them all"
    )


@pytest.mark.parametrize("name", ["response_cache", "kv_cache_index"])
def test_sections_of_another_router_may_be_there_while_they_are_off(name):
    """mending row 29: they were "not a known setting", even when they asked for nothing."""
    for text in (
        f"{name}:\n",
        f"{name}: {{}}\n",
        f"{name}:\n  enabled: false\n  backend: redis\n",
    ):
        args = RouterArgs.from_yaml(f"port: 8080\n{text}")
        args._validate_router_args()
        assert args.port == 8080
    with pytest.raises(ValueError, match=rf"{name}.enabled is 3; it must be true or false"):
        RouterArgs.from_yaml(f"{name}: {{enabled: 3}}")
    with pytest.raises(ValueError, match=rf"{name} is 5m; write it as"):
        RouterArgs.from_yaml(f"{name}: 5m")


def test_nothing_of_all_that_warns_at_import():
    """mending row 21: a clean installation says nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.reload(vllm_router)
