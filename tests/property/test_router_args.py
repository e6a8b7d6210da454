"""RouterArgs -> YAML -> RouterArgs, and RouterArgs -> command line -> RouterArgs, for all that fits."""

import contextlib
import io
import json
import re
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from vllm_router.launch_router import main, parse_router_args
from vllm_router.router_args import FLAGS, RouterArgs
from vllm_router.settings.checks import has_stages
from vllm_router.settings.clients import CLASSES
from vllm_router.settings.flag import Flag
from vllm_router.settings.kinds import (
    Choice,
    HeaderText,
    JsonObject,
    ListenAddress,
    Name,
    NameServer,
    Number,
    NumberOr,
    Raw,
    RedisUrl,
    RequestPath,
    Switch,
    Text,
    Words,
)
from vllm_router.settings.kubernetes import AnnotationName, LabelSelector, ObjectName, OneOrMore
from vllm_router.settings.response_cache import CACHED_ROUTES, IGNORED_MEMBERS, HeaderName, KeyPrefix

WORD = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters=","), min_size=1
)
LINE = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), min_size=1
).filter(str.strip)
KEY = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1).filter(
    lambda text: text == text.strip()
)
NAME = st.from_regex(r"[!#$%&'*+.^_`|~0-9A-Za-z][!#$%&'*+.^_`|~0-9A-Za-z-]*", fullmatch=True)
URL = st.builds(
    "http://{}:{}".format, st.from_regex(r"[a-z][a-z0-9]{0,7}", fullmatch=True), st.integers(1, 65535)
)
SOURCE = st.builds(
    "{}=tcp://{}:{}".format, URL, st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.integers(1, 65535)
)
PREFIX_SOURCE = st.builds("{}={}/events".format, st.from_regex(r"[a-z]{1,8}", fullmatch=True), URL)
SRV = st.from_regex(r"_[a-z]{1,8}\._tcp(\.[a-z0-9]{1,8}){0,2}\.[a-z]{1,8}\.?", fullmatch=True)
PATH = st.from_regex(r"/[a-z][a-z0-9_]{0,8}\*?", fullmatch=True)
LABEL = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,8}[A-Za-z0-9])?", fullmatch=True)
OBJECT = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
PORT = st.integers(1, 65535) | st.from_regex(r"[a-z]{1,15}", fullmatch=True)


def several(one: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(one, min_size=2, unique=True)


RAW: dict[str, st.SearchStrategy[Any]] = {
    "prefill_urls": st.lists(st.tuples(URL, st.none() | st.integers(1, 65535))),
    "decode_urls": st.lists(URL),
    "selector": st.dictionaries(LABEL, LABEL | st.just("")) | st.just(["app=vllm", "tier in (a,b)", "!old"]),
    "service_discovery_port": PORT | several(PORT),
    "service_discovery_namespace": OBJECT | several(OBJECT),
    "prefill_selector": st.dictionaries(LABEL, LABEL) | st.just(["app=vllm", "!decode"]),
    "decode_selector": st.dictionaries(LABEL, LABEL),
}


def values(flag: Flag) -> st.SearchStrategy[Any]:
    kind = flag.kind
    match kind:
        case Raw():
            fit = RAW[flag.field]
        case Number(whole=True):
            fit = st.integers(int(kind.low), None if kind.high is None else int(kind.high))
        case Number():
            fit = st.floats(kind.low, kind.high, allow_nan=False, allow_infinity=False)
        case Switch():
            fit = st.booleans()
        case Choice():
            fit = st.sampled_from(kind.names)
        case Words():
            # A word that has a form of its own: origins and URLs have the same, paths another.
            forms = {
                "fan_out_path": PATH,
                "response_cache_routes": st.sampled_from(CACHED_ROUTES),
                "response_cache_key_ignore": st.sampled_from(IGNORED_MEMBERS),
                "response_cache_store_headers": st.builds("x-{}".format, NAME),
                "response_cache_invalidate_on": PATH,
                "pd_extra_routes": st.from_regex(r"/[a-z][a-z0-9_/]{0,8}", fullmatch=True),
                "pd_pass_paths": st.from_regex(r"/[a-z][a-z0-9_/]{0,8}", fullmatch=True),
                "request_id_headers": NAME,
                "hash_key_headers": NAME,
                "kv_event_source": SOURCE,
                "kv_events_bind": st.builds("tcp://*:{}".format, st.integers(1, 65535)),
                "vllm_discovery_allow": st.sampled_from(["10.0.0.0/8", "10.0.0.7", "fd00::/8", "::1"]),
                "kv_event_replay_source": SOURCE,
                "kv_prefix_source": PREFIX_SOURCE,
                "models": NAME,
                "trusted_addresses": st.sampled_from(["10.0.0.0/8", "10.0.0.7", "fd00::/8", "::1"]),
                "model_alias_class": st.builds("{}={}".format, NAME, st.sampled_from(CLASSES)),
                "model_alias": st.builds("{}={}:8b".format, NAME, NAME),
                "worker_srv": SRV,
                "prefill_srv": SRV,
                "decode_srv": SRV,
            }
            fit = st.lists(forms.get(flag.field, WORD if kind.each is None else URL))
        case RequestPath():
            fit = st.from_regex(r"[!-\"$-~]+", fullmatch=True)
        case HeaderText():
            fit = KEY
        case HeaderName():
            fit = NAME
        case KeyPrefix():
            fit = st.from_regex(r"[!-)+->@-Z^-~]{1,64}", fullmatch=True).filter(KeyPrefix.is_own)
        case RedisUrl():
            fit = st.sampled_from(["redis://a", "VALKEYS://user@[fd00::1]:1/16383", "rediss://a.b-c_d/"])
        case Name():
            fit = st.from_regex(r"[0-9A-Za-z_.-]{1,64}", fullmatch=True)
        case NameServer():
            fit = st.sampled_from(["127.0.0.1", "10.0.0.1:53", "fd00::1", "[fd00::1]:8600", "[::1]"])
        case ListenAddress():
            fit = st.sampled_from(["0.0.0.0:0", "*:30001", "localhost:1", "[::1]:65535", "10.0.0.1:5"])
        case JsonObject():
            fit = st.sampled_from(
                ['{"page_size": 64}', '{"page_size": 16, "tp_size": 2, "is_mla_model": false}']
            )
        case ObjectName():
            fit = OBJECT
        case AnnotationName():
            fit = st.sampled_from(["vllm.ai/bootstrap-port", "port", "a.b-c/d_e.f"])
        case Text() if flag.field == "otlp_traces_endpoint":
            fit = st.sampled_from(["http://otel:4318", "https://otel.example/v1/traces"])
        case Text():
            fit = LINE
        case _:
            raise AssertionError(f"no strategy for {kind}")
    if isinstance(kind, Number) and kind.zero:
        fit |= st.just(0)
    if isinstance(kind, NumberOr):
        fit |= st.just(kind.word)
    return fit | st.none() if flag.default is None else fit


SETTINGS = st.fixed_dictionaries({}, optional={name: values(flag) for name, flag in FLAGS.items()})


@given(SETTINGS)
def test_yaml_gives_back_what_it_was_given(settings: dict[str, Any]) -> None:
    args = RouterArgs(**settings)
    assert RouterArgs.from_yaml(args.to_yaml()) == args


@given(SETTINGS)
def test_a_mapping_gives_back_what_it_was_given(settings: dict[str, Any]) -> None:
    assert RouterArgs.from_dict(settings) == RouterArgs(**settings)


def command_line(settings: dict[str, Any]) -> list[str]:
    line: list[str] = []
    for name, value in settings.items():
        flag = FLAGS[name]
        match flag.kind:
            case Switch():
                line.append(flag.spelling if value else f"--no-{flag.spelling[2:]}")
            case LabelSelector():
                terms = [f"{key}={text}" for key, text in value.items()] if isinstance(value, dict) else value
                line += [flag.spelling, *terms]
            case OneOrMore():
                line += [flag.spelling, *map(str, value if isinstance(value, list) else [value])]
            case Words():
                line += [flag.spelling, *value]
            case Raw():
                for row in value:
                    url, *port = (row,) if isinstance(row, str) else row
                    line += [flag.spelling, url, *("none" if one is None else str(one) for one in port)]
            case _:
                line.append(f"{flag.spelling}={value}")
    return line


BUILT = {name: values(flag) for name, flag in FLAGS.items() if flag.scope}
ON_COMMAND_LINE = {name: kind for name, kind in BUILT.items() if FLAGS[name].on_command_line}


@given(st.fixed_dictionaries({}, optional=ON_COMMAND_LINE), st.randoms(use_true_random=False))
def test_the_command_line_gives_back_what_it_was_given(settings: dict[str, Any], random: Any) -> None:
    def awkward(value: Any) -> bool:
        # None cannot be written, and argparse takes a word with a dash in front for a flag.
        return value is None or (isinstance(value, list) and any(str(word).startswith("-") for word in value))

    settings = {name: value for name, value in settings.items() if not awkward(value)}
    names = list(settings)
    random.shuffle(names)
    args = parse_router_args(command_line({name: settings[name] for name in names}))
    assert {name: getattr(args, name) for name in settings} == settings


def in_harmony(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, but for what one of them refuses of another."""
    settings = {**settings, "health_check_endpoint": "/health"}
    if settings.get("tls_client_ca_file") is not None:
        settings["tls_cert_path"] = "cert.pem"
    if settings.get("peer_sync_admin"):
        settings["peer_sync_secret_file"] = "secret"
    for cert, key in (
        ("tls_cert_path", "tls_key_path"),
        ("worker_cert_path", "worker_key_path"),
        ("peer_sync_cert_path", "peer_sync_key_path"),
        ("redis_cert_path", "redis_key_path"),
    ):
        if settings.get(cert) is not None or settings.get(key) is not None:
            settings |= {cert: "cert.pem", key: "key.pem"}
    if settings.get("client_api_key_file") == settings.get("admin_api_key_file"):
        settings["admin_api_key_file"] = None
    if settings.get("record_log") in (None, settings.get("record_log_salt_file")):
        settings["record_log_salt_file"] = None
    if "retry_initial_backoff_ms" in settings or "retry_max_backoff_ms" in settings:
        settings["retry_initial_backoff_ms"] = 1
    if "dns_min_secs" in settings or "dns_max_secs" in settings:
        settings["dns_min_secs"] = 0.1
    if "scale_min" in settings or "scale_max" in settings:
        settings["scale_min"] = 0
    if settings.get("response_cache"):
        settings |= {"response_cache_tenant_header": "x-tenant", "redis_url": "redis://a"}
        settings |= {"response_cache_lookup_budget_ms": 1, "response_cache_capture_memory_bytes": 2**28}
        settings["response_cache_max_memory_bytes"] = 2**30
    if settings.get("pod_deletion_cost"):
        settings["service_discovery_service"] = None
    if settings.get("service_discovery"):
        settings |= {"selector": {"app": "vllm"}, "service_discovery_service": None, "inference_pool": None}
    if "kv_events_bind" in settings:
        settings["kv_events_bind"] = [*dict.fromkeys(settings["kv_events_bind"])]
    heard = ("kv_events_push", "kv_events_bind")
    if any(settings.get(name) for name in heard) or settings.get("kv_events_engine", "auto") != "auto":
        settings["kv_events"] = "auto"
    if any(name.startswith("shared_cache_") for name in settings):
        settings |= {"shared_cache_type": "hicache", "policy": "kv_logit", "prefill_policy": None}
    if settings.get("kv_connector") in ("moriio", "p2p_nccl"):
        settings["vllm_discovery_address"] = "127.0.0.1:0"
    if settings.get("vllm_pd_disaggregation"):
        settings |= {"prefill_urls": [("http://p", None)], "decode_urls": ["http://d"]}
        settings |= {"worker_dns": [], "worker_srv": []}
        settings |= {"decode_dns": ["http://d.svc:1"], "decode_srv": ["_d._tcp.svc"]}
        if settings.get("service_discovery"):
            settings |= {"prefill_selector": {"role": "prefill"}, "decode_selector": {"role": "decode"}}
    if settings.get("kv_connector") in ("sglang", "moriio", "p2p_nccl"):  # decode cannot prefill
        settings["pd_bypass_uncached_tokens"] = 0
    if settings.get("exclude_waiting_above") or settings.get("exclude_kv_above"):
        settings["load_poll_interval_secs"] = 1
    if has_stages(settings):
        settings["admission_config"] = None
    if has_stages(settings) or settings.get("epp_only"):
        settings |= {"program_admission": "off", "enable_program_scheduling": False}
    settings["program_scheduling_config_json"] = None  # its members are those of the reference
    return settings


@given(st.fixed_dictionaries({}, optional=BUILT))
def test_what_fits_is_accepted_and_reaches_the_core(settings: dict[str, Any]) -> None:
    args = RouterArgs(**in_harmony(settings))
    args._validate_router_args()
    handed_on = {**args.router_options(), **args.server_options()}
    assert handed_on.keys() == BUILT.keys()


# Secrets. Rare letters, so that no part of one is in a message by chance.

CORE = st.text(st.sampled_from("QXZJKVÖ0"), min_size=4, max_size=12)
SECRET = st.builds(
    "{}{}{}".format,
    CORE,
    st.sampled_from(["", "/", ",", " ", ":", "?", "#", "@", "%", "'", '"', "\\", "\n"]),
    CORE,
)
URL_OF = st.sampled_from(
    ["http://u:{}@h:1", "grpc://u:{}@h", "ftp://u:{}@h", "http://{}@h/p", "u:{}@h", "https://h/?token={}#"]
)
SECRET_FLAGS = sorted(name for name, flag in FLAGS.items() if flag.secret)
URL_FLAGS = sorted(name for name, flag in FLAGS.items() if flag.urls)


def said_of(use: Callable[[], Any]) -> str:
    """What is said of a mistake; nothing when there was none."""
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written), warnings.catch_warnings(record=True) as heard:
            use()
        return written.getvalue() + "".join(str(warning.message) for warning in heard)
    except (ValueError, TypeError, SystemExit) as error:
        return f"{error} {written.getvalue()}"


def hides(secret: str, said: str) -> bool:
    """Whether no four letters of the secret in a row are there, blanks and the like apart."""
    pieces = re.findall("[QXZJKVÖ0]{4,}", secret)
    return not any(piece[i : i + 4] in said for piece in pieces for i in range(len(piece) - 3))


def in_yaml(secret: str) -> st.SearchStrategy[str]:
    """YAML with a secret somewhere under a name: as text in all styles, in lists and mappings, or broken."""
    quoted = json.dumps(secret)
    secret = secret.replace("\n", "\n  ")  # at the margin its second line would be a name, which is shown
    return st.sampled_from(
        [
            f"[{quoted}, {quoted}]",
            f"{{{quoted}: {quoted}}}",
            f"{{a: [{quoted}]}}",
            f"[[{quoted}, 1, 2]]",
            f"[{{api-key: {quoted}}}]",
            f"{quoted} x",
            f"'{secret}",
            f'"{secret}',
            f"|\n {secret}\n",
            f"[{secret}",
            f"*{secret}",
            f"!{secret} x",
            f"&{secret} *{secret}",
            f"{secret}: {secret}: x",
            f"{quoted}\n\tx: {secret}",
            f"@{secret}",
            f"%{secret}",
            f"`{secret}",
            f'"\\{secret}"',
            f"!!python/{secret} x",
            f"! {secret}\x07",
            quoted,
            secret,
        ]
    )


@given(st.data(), SECRET)
def test_no_error_about_yaml_shows_a_secret(data: st.DataObject, secret: str) -> None:
    name = data.draw(st.sampled_from([*SECRET_FLAGS, *URL_FLAGS]))
    value = secret if name in SECRET_FLAGS else data.draw(URL_OF).format(secret)
    text = f"port: 1\n{name.replace('_', '-')}: {data.draw(in_yaml(value))}\nhost: a\n"

    def use() -> None:
        RouterArgs.from_yaml(text)._validate_router_args()

    assert hides(secret, said_of(use))


@given(st.data(), SECRET)
def test_no_error_of_the_command_line_shows_a_secret(data: st.DataObject, secret: str) -> None:
    name = data.draw(st.sampled_from([*SECRET_FLAGS, *URL_FLAGS]))
    flag = FLAGS[name]
    value = secret if name in SECRET_FLAGS else data.draw(URL_OF).format(secret)
    spelling = data.draw(st.sampled_from(flag.spellings))
    words = data.draw(
        st.sampled_from([[value], value.split(), [value, value], [value, "x", "y"], ["x", value]])
    )
    line = data.draw(
        st.sampled_from(
            [[f"--{spelling}", *words], [f"--{spelling}={words[0]}", *words[1:]], [f"--{spelling}x={value}"]]
        )
    )

    def use() -> None:
        parse_router_args([*line, "--port", "1"])._validate_router_args()

    assert hides(secret, said_of(use))


@given(st.data(), SECRET)
def test_no_error_of_the_library_shows_a_secret(data: st.DataObject, secret: str) -> None:
    name = data.draw(st.sampled_from([*SECRET_FLAGS, *URL_FLAGS]))
    value = secret if name in SECRET_FLAGS else data.draw(URL_OF).format(secret)
    wrong = data.draw(
        st.sampled_from(
            [
                value,
                [value],
                (value, 1),
                [[value]],
                [[value, value]],
                {value: value},
                {value},
                value.encode(),
                [value, 1.5],
            ]
        )
    )
    for use in (
        lambda: RouterArgs(**{name: wrong})._validate_router_args(),
        lambda: RouterArgs(**{name: wrong}).server_options(),
        lambda: RouterArgs.from_dict({name: wrong}),
        lambda: repr(RouterArgs(api_key=wrong)),
    ):
        assert hides(secret, said_of(use))


@given(URL_OF, SECRET)
def test_no_error_about_the_environment_shows_a_secret(form: str, secret: str) -> None:
    def use() -> None:
        with mock.patch.dict("os.environ", {"API_KEY_VALIDATION_URLS": f"http://a, {form.format(secret)}"}):
            router = mock.patch("vllm_router.launch_router.Router", create=True)
            with router as started:
                started.from_args.return_value.start.return_value = 0
                main(["--port", "1"])

    assert hides(secret, said_of(use))
