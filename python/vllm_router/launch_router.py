"""The `vllm-router` command, and launch_router() for programs that start a router from Python.

    vllm-router --worker-urls http://a:8000 http://b:8000     serve until SIGTERM
    vllm-router --config router.yaml --port 8080              settings from a file; the command line wins
    vllm-router demo                                          watch requests routed over a simulated fleet
    vllm-router replay trace.jsonl --policy all               which policy serves this traffic best
    vllm-router simulate-worker --port 0                      one simulated worker
    vllm-router doctor --config router.yaml                   checks of machine, settings and workers
    vllm-router probe                                         whether a router is ready, by exit status
    vllm-router status http://router:30000                    what is wrong with a router that runs

Exit status: 0 after a clean end, 1 when the router could not start, 2 for a mistake on the command line or in
the file, 3 when requests in flight had to be cut because the grace period ended.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import itertools
import logging
import logging.handlers
import os
import stat
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from vllm_router._dotenv import dotenv_value
from vllm_router._help import HelpAction, HelpFormatter, filled
from vllm_router._log_streams import CoreHandler, configure_log, own_the_process, through_the_log
from vllm_router._messages import did_you_mean, quoted
from vllm_router._output import printable
from vllm_router._secrets import is_open_url, shown_urls
from vllm_router._version import __version__
from vllm_router.errors import RouterError, UnusedOptionWarning
from vllm_router.reload import Loaded, SettingsFile
from vllm_router.router_args import RouterArgs
from vllm_router.settings.command_line import GIVEN, CommandParser
from vllm_router.settings.environment import settings_of_environment
from vllm_router.settings.kinds import Raw, Text
from vllm_router.settings.names import FLAGS, suggestion, unknown_name
from vllm_router.settings.response_cache import check_fleet_is_told
from vllm_router.settings.yaml import MAX_YAML_BYTES, too_long

logger = logging.getLogger("vllm_router")

_VALIDATION_URLS = "API_KEY_VALIDATION_URLS"
_OF_ENVIRONMENT = ("api_key_validation_urls", "session_ttl_secs")
_SESSION_TTL = "VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S"

# Each is a module with main(argv) -> exit status, imported only when asked for.
COMMANDS = {
    "completion": "vllm_router.completion",
    "demo": "vllm_router.demo",
    "doctor": "vllm_router.doctor",
    "probe": "vllm_router.probe",
    "replay": "vllm_router.replay.command",
    "simulate-worker": "vllm_router.simulate_worker",
    "status": "vllm_router.status",
}

_SERVES = "vllm-router serves without one: vllm-router --worker-urls http://gpu-0:8000"
# What people type first, and what to type.
_NOT_COMMANDS = {
    **dict.fromkeys(("serve", "server", "start", "run", "launch", "router"), _SERVES),
    **dict.fromkeys(("help", "-h", "?"), "vllm-router --help shows the flags and the commands"),
    "version": "vllm-router --version shows the version",
    **dict.fromkeys(("check", "validate", "test"), "vllm-router doctor checks the settings and the workers"),
    **dict.fromkeys(("worker", "simulate"), "vllm-router simulate-worker is a worker without a GPU"),
    **dict.fromkeys(("health", "ready"), "vllm-router probe exits with 0 when a router is ready"),
}

_DESCRIPTION = """\
One address in front of many LLM workers: picks a worker for each request and streams its response through.

  vllm-router --worker-urls http://a:8000 http://b:8000 --policy consistent_hash
  vllm-router --config router.yaml          the same names in a file; the command line wins
  vllm-router demo                          requests routed over a small simulated fleet, live
  vllm-router replay --help                 which policy serves your traffic best, in simulated time
  vllm-router simulate-worker --help        a worker without a GPU
  vllm-router doctor --config router.yaml   checks the machine, the settings and the workers without serving
  vllm-router probe                         exits with 0 when a router is ready
  vllm-router status                        says what is wrong with a router that runs
  vllm-router completion bash               a script that completes the command in bash, zsh or fish

Names may be written with - or _, lists with blanks or commas."""


class _Parser(CommandParser):
    """With sentences that show nothing of a secret, and know what other routers have."""

    def parse_command(self, args: Sequence[str] | None) -> argparse.Namespace:
        # Before an error about the value's first word could show it.
        for word, after in itertools.pairwise(args or ()):
            if "=" in word and not after.startswith("-") and _secret_flag_before(after, [word, after]):
                self.error(self.unknown([after], [word, after]))
        return super().parse_command(args)

    def unknown(self, strangers: Sequence[str], args: Sequence[str]) -> str:
        flag = next((word for word in strangers if word.startswith("-")), None)
        before = _secret_flag_before(strangers[0] if flag is None else flag, args)
        if before is not None:
            return (
                f"{before} takes one value, and another word follows it; put the value in quotes if it "
                "contains blanks, else see vllm-router --help"
            )
        see = "; see vllm-router --help"
        if flag is None:
            word = shown_urls(strangers[0])
            if "://" in word:
                return f"{word} is not a flag; pass worker URLs after --worker-urls"
            meant = _NOT_COMMANDS.get(word.lower())
            if meant is not None:
                return f"{word} is not a command; {meant}"
            return f"{word} is neither a flag nor a command" + did_you_mean(word, COMMANDS, see)
        name = shown_urls(flag.split("=", 1)[0])
        sentence = unknown_name(name.lstrip("-"))
        if "is not a known setting" not in sentence:
            return f"--{sentence}"
        known = [f"--{spelling}" for flag in FLAGS.values() for spelling in flag.spellings]
        known += ["--config", "--version"]
        return f"{name} is not a flag of vllm-router" + suggestion(name, known, see)


def _secret_flag_before(stranger: str, args: Sequence[str]) -> str | None:
    """The flag of a secret whose value the word may belong to: they are parted by no other flag."""
    names = {name: flag for flag in FLAGS.values() for name in flag.option_strings}
    secret = None
    for word in args:
        flag = names.get(word.split("=", 1)[0])
        if flag is not None:
            one = isinstance(flag.kind, (Text, Raw)) or "=" in word
            secret = flag.spelling if one and (flag.secret or flag.urls) else None
        elif word.startswith("--"):
            secret = None  # a flag that is misspelt
        elif secret is not None and word == stranger:
            return None if "://" in word and is_open_url(word) else secret
    return None


def _make_parser(parser_class: type[_Parser] = _Parser) -> _Parser:
    parser = parser_class(
        prog="vllm-router",
        description=_DESCRIPTION,
        usage="vllm-router [--worker-urls URL ...] [--policy NAME] [--port PORT] [flags]",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    general = parser.add_argument_group("General")
    general.add_argument(
        "-h",
        "--help",
        action=HelpAction,
        nargs="?",
        metavar="[WHAT]",
        default=argparse.SUPPRESS,
        help="Show the usual flags and exit; all: every flag; else those of a group, or one flag.",
    )
    general.add_argument(
        "-V",
        "--version",
        action="version",
        version=f"vllm-router {__version__}",
        help="Show the version and exit.",
    )
    general.add_argument(
        "--config",
        metavar="FILE",
        help="A YAML file of settings, with the same names; the command line overrides it.",
    )
    RouterArgs.add_cli_args(parser)
    unbuilt = " ".join(flag.spelling for flag in FLAGS.values() if flag.not_built and flag.on_command_line)
    parser.epilog = filled(
        "Flags of vllm-project/router that are not implemented yet, and accepted at their defaults only "
        f"(see docs/reference/cli.md): {unbuilt}"
    )
    return parser


def parse_router_args(args: Sequence[str], parser: CommandParser | None = None) -> RouterArgs:
    """The settings of a command line (and its `--config` file).

    A mistake in either ends the process with a sentence on stderr and status 2, as argparse does.
    `launch_router` checks that the settings fit together. `parser` may have more flags than the command.
    """
    return _loaded(args, parser or _make_parser()).args


def _loaded(args: Sequence[str], parser: CommandParser, content: bytes | None = None) -> Loaded:
    """The same, and where each setting comes from. `content` of the file, if that was read already."""
    namespace = parser.parse_command(args)
    try:
        in_line: frozenset[str] = getattr(namespace, GIVEN, frozenset())
        in_file = {} if namespace.config is None else _config_values(namespace.config, content)
        in_environment = settings_of_environment(os.environ)
        values = in_file | in_environment
        if values:
            # They become the parser's defaults, and the line is read again: so the line wins.
            defaults: dict[str, Any] = {FLAGS[name].dest: value for name, value in values.items()}
            parser.set_defaults(**{GIVEN: frozenset(values)}, **defaults)
            namespace = parser.parse_command(args)
        sources = (
            dict.fromkeys(in_file, "file")
            | dict.fromkeys(in_environment, "environment")
            | dict.fromkeys(in_line, "command line")
        )
        return Loaded(RouterArgs.from_cli_args(namespace), sources, namespace.config)
    except ValueError as error:
        parser.error(str(error))


class _ReloadParser(_Parser):
    """Of a line that was right before: a mistake must not end the process."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _settings_file(args: Sequence[str], loaded: Loaded) -> SettingsFile | None:
    """The `--config` file of a command line, if it has one, which can be read again."""
    if loaded.file is None:
        return None
    return SettingsFile(
        loaded.file,
        lambda content: _checked(_loaded(args, _make_parser(_ReloadParser), content)),
        loaded,
    )


def _checked(loaded: Loaded) -> Loaded:
    """As the start checks settings. Raises ValueError."""
    args = with_environment(loaded.args)
    args._validate_router_args()
    check_fleet_is_told(args)
    of_environment = {
        name: "environment" for name in _OF_ENVIRONMENT if getattr(args, name) != getattr(loaded.args, name)
    }
    return Loaded(args, {**loaded.sources, **of_environment}, loaded.file)


def check_config_is_a_file(path: str, *, devices: bool) -> None:
    """Raises ValueError about what is no regular file: opening a FIFO would wait for whoever writes to it."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return  # reading it says what is wrong
    if stat.S_ISREG(mode) or (devices and stat.S_ISCHR(mode)):
        return
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO"}
    raise ValueError(
        f"--config {printable(path)} is {kinds.get(stat.S_IFMT(mode), 'a device or a socket')}, and only "
        "regular files are read; write the settings to a file, and name that"
    )


def _config_values(path: str, content: bytes | None = None) -> dict[str, Any]:
    try:
        beginning = _beginning_of(path) if content is None else content
        text = beginning[:MAX_YAML_BYTES].decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(f"--config {printable(path)} cannot be read: {reason}") from None
    if len(beginning) > MAX_YAML_BYTES:
        raise too_long(printable(path))
    return RouterArgs.values_of_yaml(text, path)


def _beginning_of(path: str) -> bytes:
    check_config_is_a_file(path, devices=True)
    with Path(path).open("rb") as file:
        return file.read(MAX_YAML_BYTES + 1)  # of what has no end, such as /dev/zero, no more


def launch_router(args: argparse.Namespace | RouterArgs) -> int | None:
    """Start a router and serve until it is told to stop.

    Args:
        args: settings, or the namespace of a parser to which `RouterArgs.add_cli_args` added them.

    Returns:
        What `Router.start()` returns: the exit status of the server, or None.

    Raises:
        ValueError: a setting is out of range, or its function is not implemented yet.
        OSError, RuntimeError, RouterError: the router could not start, for example because its port is taken.
    """
    router_args = args if isinstance(args, RouterArgs) else RouterArgs.from_cli_args(args)
    return _launch(_checked(Loaded(router_args, {})))


def _launch(loaded: Loaded, line: Sequence[str] | None = None) -> int | None:
    router_args = loaded.args
    for sentence in router_args.warnings():
        logger.warning("%s", sentence)
    _set_process_title()
    router_class = globals().get("Router") or __getattr__(
        "Router"
    )  # tests of frameworks put another one here
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedOptionWarning)  # they have been logged just now
        router = router_class.from_args(router_args)
    if line is not None:
        router._set_by = loaded.sources
        router._settings_file = _settings_file(line, loaded)
    with through_the_log(*(() if line is None else (1,))):
        status: int | None = router.start()
    return status


def with_environment(args: RouterArgs) -> RouterArgs:
    """The settings, with what the variables of vllm-project/router set where the settings do not."""
    if not args.api_key_validation_urls:
        args = dataclasses.replace(args, api_key_validation_urls=_validation_urls())
    if args.session_ttl_secs == RouterArgs.session_ttl_secs:
        args = dataclasses.replace(args, session_ttl_secs=_session_ttl_secs())
    return args


def _validation_urls() -> list[str]:
    """API_KEY_VALIDATION_URLS of the environment, or else of a file `.env`."""
    urls = os.environ.get(_VALIDATION_URLS)
    if urls is None:
        found = dotenv_value(_VALIDATION_URLS, Path.cwd())
        if found is not None:
            urls, file = found
            logger.warning("%s is taken from %s", _VALIDATION_URLS, file)
    return [url.strip() for url in (urls or "").split(",") if url.strip()]


def _session_ttl_secs() -> int:
    """VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S of the environment, else the default of `session_ttl_secs`."""
    text = os.environ.get(_SESSION_TTL, "").strip()
    if not text:
        return RouterArgs.session_ttl_secs
    try:
        seconds: int = FLAGS["session_ttl_secs"].check(int(text))
    except ValueError:
        raise ValueError(
            f"{_SESSION_TTL} of the environment is {quoted(text)}; it must be a whole number of seconds "
            "between 1 and 31536000: correct it, or unset it and use --session-ttl-secs"
        ) from None
    logger.warning("--session-ttl-secs is taken from %s of the environment", _SESSION_TTL)
    return seconds


def __getattr__(name: str) -> Any:
    """`Router`, imported when it is first asked for: `--help` need not wait for numpy."""
    if name != "Router":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("vllm_router.router").Router


def _set_process_title() -> None:
    try:
        setproctitle = importlib.import_module("setproctitle")
    except ImportError:
        return  # a nicety of `ps`, not worth a dependency
    setproctitle.setproctitle("vllm::router")


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status; bad usage raises SystemExit(2) as argparse does."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in COMMANDS:
        _log_to_stderr()
        return _run_command(arguments[0], arguments[1:])
    own_the_process()
    with through_the_log(2):
        return _serve(arguments)


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.WARNING, handlers=[_stderr_handler()])


def _stderr_handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("vllm-router: %(levelname)s: %(message)s"))
    return handler


@contextlib.contextmanager
def _early_messages() -> Iterator[None]:
    """Messages about settings wait until these say what the log is; after a mistake they are plain."""
    waiting = logging.handlers.MemoryHandler(1000, logging.CRITICAL + 1)
    logging.basicConfig(
        level=logging.WARNING, handlers=[waiting]
    )  # nothing, in a program that logs otherwise
    target: logging.Handler = _stderr_handler()
    try:
        yield
        target = CoreHandler()
    finally:
        waiting.setTarget(target)
        waiting.close()
        root = logging.getLogger()
        if waiting in root.handlers:
            root.removeHandler(waiting)
            root.addHandler(target)


def _serve(arguments: list[str]) -> int:
    try:
        with _early_messages():
            loaded = _checked(_loaded(arguments, _make_parser()))
            configure_log(loaded.args.server_options())
        return _launch(loaded, arguments) or 0
    except (TypeError, ValueError) as error:
        return _failure(error, 2)
    except (ImportError, OSError, RuntimeError, RouterError) as error:
        return _failure(error, 1)
    except KeyboardInterrupt:
        return 130


def _run_command(command: str, arguments: list[str]) -> int:
    module_name = COMMANDS[command]
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module_name:
            return _failure(f"{command} is not part of this build: the module {module_name} is missing", 1)
        return _failure(error, 1)
    try:
        return int(module.main(arguments) or 0)
    except KeyboardInterrupt:
        return 130


def _failure(error: object, status: int) -> int:
    print("vllm-router: error:", " ".join(str(error).split()), file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
