"""`vllm-router completion`: a script that completes the command in bash, zsh or fish.

    source <(vllm-router completion bash)
    vllm-router completion zsh > ~/.zfunc/_vllm-router
    vllm-router completion fish > ~/.config/fish/completions/vllm-router.fish

Each script is made from the parsers of the command and of its subcommands: flags that are built, the values
of those that choose from a list, files and directories.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from collections.abc import Callable, Iterator, Sequence

from vllm_router._output import write_out
from vllm_router.launch_router import COMMANDS, _make_parser
from vllm_router.settings.command_line import CommandParser
from vllm_router.settings.flag import Flag
from vllm_router.settings.kinds import Choice, Text


@dataclasses.dataclass(frozen=True)
class Option:
    """A flag, or an operand, which has no names: what it is, and what a shell can say about its value."""

    names: tuple[str, ...]
    what: str
    takes_value: bool = True
    several: bool = False
    words: tuple[str, ...] = ()
    files: str = ""  # "file" or "directory" where the value is the path of one


@dataclasses.dataclass(frozen=True)
class Command:
    """`vllm-router`, whose name is empty here, or a subcommand."""

    name: str
    what: str
    options: tuple[Option, ...]

    @property
    def flags(self) -> tuple[Option, ...]:
        """Its options without the operands."""
        return tuple(option for option in self.options if option.names)


def commands() -> list[Command]:
    """The command, then its subcommands."""
    subcommands = [_command(name, _parser_of(module)) for name, module in COMMANDS.items()]
    return [_command("", _make_parser()), *subcommands]


def _parser_of(module: str) -> argparse.ArgumentParser:
    try:
        parser: argparse.ArgumentParser = importlib.import_module(module).make_parser()
    except ImportError:  # a build may lack it
        return argparse.ArgumentParser(add_help=False)
    return parser


def _command(name: str, parser: argparse.ArgumentParser) -> Command:
    what = _first_sentence(parser.description or "")
    return Command(name, what, tuple(_options(parser)))


def _options(parser: argparse.ArgumentParser) -> Iterator[Option]:
    for action in parser._actions:
        flag: Flag | None = getattr(action, "flag", None)
        if getattr(action, "present", "") or (flag is not None and flag.not_built):
            continue  # a former name, or a function that is not there
        names = tuple(name for name in action.option_strings if "_" not in name)
        if action.option_strings and not names:
            continue  # spelled with _
        what = flag.what if flag else (action.help or "").replace("%%", "%")
        kind = getattr(action, "kind", None)
        path = kind is None or type(kind) is Text
        yield Option(
            names=names,
            what=f"Turn {flag.spelling} off" if flag and action.const is False else _first_sentence(what),
            takes_value=action.nargs != 0,
            several=action.nargs in ("*", "+"),
            words=kind.names if isinstance(kind, Choice) else tuple(map(str, action.choices or ())),
            files={"FILE": "file", "PATH": "file", "TRACE": "file", "DIRECTORY": "directory"}.get(
                str(action.metavar) if path else "", ""
            ),
        )


def _first_sentence(text: str) -> str:
    sentence = " ".join(text.split()).split(". ", 1)[0].rstrip(".")
    return sentence[:1].upper() + sentence[1:]


BASH = """\
# bash completion for vllm-router, made by: vllm-router completion bash

_vllm_router_reply() {
    local line
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen "$@")
}

_vllm_router() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=
    COMPREPLY=()
    # bash parts --flag=value into three words.
    if [[ $word == = ]]; then
        word=
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    [[ $before == --* ]] && before=${before//_/-}
    if ((COMP_CWORD > 1)); then
        case ${COMP_WORDS[1]} in
            %(names)s) command=${COMP_WORDS[1]} ;;
        esac
    fi
    case $command:$before in
%(values)s
    esac
    if [[ $word == -* ]]; then
        case $command in
%(flags)s
        esac
    elif ((COMP_CWORD == 1)); then
        _vllm_router_reply -W '%(words)s' -- "$word"
    else
        case $command in
%(operands)s
        esac
    fi
}

complete -F _vllm_router vllm-router
"""


def bash(of: Sequence[Command]) -> str:
    """The script for bash 3.2 and newer."""
    values: dict[str, list[str]] = {}
    for command in of:
        for option in command.flags:
            if option.takes_value:
                patterns = values.setdefault(_bash_reply(option), [])
                patterns += [f"{command.name}:{name}" for name in option.names]
    names = [command.name for command in of if command.name]
    operands = [(command.name, option) for command in of for option in command.options if not option.names]
    return BASH % {
        "names": " | ".join(names),
        "words": " ".join(names),
        "values": "\n".join(
            f"        {' | '.join(patterns)})\n            {reply}return\n            ;;"
            for reply, patterns in values.items()
        ),
        "flags": "\n".join(
            f"            '{command.name}') _vllm_router_reply -W '"
            f'{" ".join(name for option in command.flags for name in option.names)}\' -- "$word" ;;'
            for command in of
        ),
        "operands": "\n".join(
            f"            '{name}') {_bash_reply(option).rstrip('; ') or ':'} ;;" for name, option in operands
        ),
    }


def _bash_reply(option: Option) -> str:
    if option.words:
        return f"_vllm_router_reply -W '{' '.join(option.words)}' -- \"$word\"; "
    if option.files:
        kind = "-f" if option.files == "file" else "-d"
        return f'compopt -o filenames 2>/dev/null; _vllm_router_reply {kind} -- "$word"; '
    return ""


ZSH = """\
#compdef vllm-router
# zsh completion for vllm-router, made by: vllm-router completion zsh

_vllm-router() {
  case ${words[2]} in
%(cases)s
  esac
}

if [[ ${funcstack[1]} == _vllm-router ]]; then
  _vllm-router "$@"
else
  compdef _vllm-router vllm-router
fi
"""


def zsh(of: Sequence[Command]) -> str:
    """The script for zsh."""
    subcommands = [(command.name, _zsh_text(command.what, spaces=True)) for command in of if command.name]
    first = " ".join(f"{name}\\:{what}" for name, what in subcommands)
    cases = ""
    for command in [*of[1:], of[0]]:
        arguments = [_zsh_argument(option, name) for option in command.flags for name in option.names]
        arguments += [_zsh_argument(option, "*") for option in command.options if not option.names]
        if not command.name:
            arguments.append(f"'1:command:(({first}))'")
        move = "    shift words; ((CURRENT--))\n" if command.name else ""
        pattern = f"({command.name})" if command.name else "(*)"
        lines = " \\\n      ".join(arguments)
        cases += f"  {pattern}\n{move}    _arguments \\\n      {lines}\n    ;;\n"
    return ZSH % {"cases": cases.rstrip("\n")}


def _zsh_argument(option: Option, name: str) -> str:
    if not option.names:
        return f"'*: :{_zsh_action(option)}'"
    text = f"{'*' if option.several else ''}{name}"
    if option.takes_value and name.startswith("--"):
        text += "="
    text += f"[{_zsh_text(option.what)}]"
    return f"'{text}: :{_zsh_action(option)}'" if option.takes_value else f"'{text}'"


def _zsh_action(option: Option) -> str:
    if option.words:
        return f"({' '.join(option.words)})"
    return {"file": "_files", "directory": "_files -/", "": " "}[option.files]


def _zsh_text(text: str, *, spaces: bool = False) -> str:
    special = "\\[]:()" + (' ;&|<>*?~#$"`' if spaces else "")
    return "".join("\\" * (character in special) + character for character in text).replace("'", "'\\''")


FISH = """\
# fish completion for vllm-router, made by: vllm-router completion fish

function __vllm_router_command --argument-names wanted
    set -l words (commandline -opc)
    set -l command ''
    if set -q words[2]; and contains -- $words[2] %(names)s
        set command $words[2]
    end
    test "$command" = "$wanted"
end

complete -c vllm-router -f
"""


def fish(of: Sequence[Command]) -> str:
    """The script for fish 3 and newer."""
    subcommands = [command for command in of if command.name]
    lines = [
        f"complete -c vllm-router -n 'test (count (commandline -opc)) -eq 1' -a {command.name} "
        f"-d {_fish_text(command.what)}"
        for command in subcommands
    ]
    for command in of:
        start = f"complete -c vllm-router -n '__vllm_router_command \"{command.name}\"'"
        for option in command.options:
            names = [f"-s {name[1:]}" if name[1] != "-" else f"-l {name[2:]}" for name in option.names]
            what = [f"-d {_fish_text(option.what)}"] if names else []
            value = _fish_value(option) if option.takes_value else []
            lines.append(" ".join([start, *names, *value, *what]))
    return FISH % {"names": " ".join(command.name for command in subcommands)} + "\n".join(lines) + "\n"


def _fish_value(option: Option) -> list[str]:
    required = ["-r"] if option.names else []
    if option.words:
        return [*required, "-f", f"-a '{' '.join(option.words)}'"]
    if option.files == "file":
        return [*required, "-F"]
    return [*required, "-f", *(["-a '(__fish_complete_directories)'"] if option.files else [])]


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: dict[str, Callable[[Sequence[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def make_parser() -> CommandParser:
    """The shell, by name."""
    parser = CommandParser(
        prog="vllm-router completion",
        description="Prints a script that completes the command in a shell. To try it: "
        "source <(vllm-router completion bash)",
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=tuple(SHELLS), metavar="SHELL", help=f"One of {', '.join(SHELLS)}.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the script; returns 0, or 1 where it cannot be written."""
    shell = make_parser().parse_command(argv).shell
    return write_out(SHELLS[shell](commands()))
