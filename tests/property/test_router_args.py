"""RouterArgs -> YAML -> RouterArgs, and RouterArgs -> command line -> RouterArgs, for all that fits."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vllm_router._flags import Choice, Flag, Number, Raw, Switch, Text, Words
from vllm_router.launch_router import parse_router_args
from vllm_router.router_args import FLAGS, RouterArgs

WORD = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters=","), min_size=1
)
LINE = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), min_size=1
).filter(str.strip)
URL = st.builds("http://{}:{}".format, st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True), st.integers(1, 65535))
PATH = st.from_regex(r"/[a-z][a-z0-9_]{0,8}\*?", fullmatch=True)
RAW: dict[str, st.SearchStrategy[Any]] = {
    "prefill_urls": st.lists(st.tuples(URL, st.none() | st.integers(1, 65535))),
    "decode_urls": st.lists(URL),
    "selector": st.dictionaries(WORD, WORD),
    "prefill_selector": st.dictionaries(WORD, WORD),
    "decode_selector": st.dictionaries(WORD, WORD),
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
            plain = kind.each is None and flag.field != "api_key_validation_urls"
            fit = st.lists(PATH if flag.field == "fan_out_path" else WORD if plain else URL)
        case Text():
            fit = LINE
        case _:
            raise AssertionError(f"no strategy for {kind}")
    if isinstance(kind, Number) and kind.zero:
        fit |= st.just(0)
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
            case Words():
                line += [flag.spelling, *value]
            case _:
                line.append(f"{flag.spelling}={value}")
    return line


BUILT = {name: values(flag) for name, flag in FLAGS.items() if flag.scope}


@given(st.fixed_dictionaries({}, optional=BUILT), st.randoms(use_true_random=False))
def test_the_command_line_gives_back_what_it_was_given(settings: dict[str, Any], random: Any) -> None:
    def awkward(value: Any) -> bool:
        # None cannot be written, and argparse takes a word with a dash in front for a flag.
        return value is None or (isinstance(value, list) and any(word.startswith("-") for word in value))

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
    for cert, key in (("tls_cert_path", "tls_key_path"), ("worker_cert_path", "worker_key_path")):
        if settings.get(cert) is not None or settings.get(key) is not None:
            settings |= {cert: "cert.pem", key: "key.pem"}
    if settings.get("client_api_key_file") == settings.get("admin_api_key_file"):
        settings["admin_api_key_file"] = None
    if settings.get("record_log") in (None, settings.get("record_log_salt_file")):
        settings["record_log_salt_file"] = None
    if "retry_initial_backoff_ms" in settings or "retry_max_backoff_ms" in settings:
        settings["retry_initial_backoff_ms"] = 1
    return settings


@given(st.fixed_dictionaries({}, optional=BUILT))
def test_what_fits_is_accepted_and_reaches_the_core(settings: dict[str, Any]) -> None:
    args = RouterArgs(**in_harmony(settings))
    args._validate_router_args()
    handed_on = {**args.router_options(), **args.server_options()}
    assert handed_on.keys() == BUILT.keys()
