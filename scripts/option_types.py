"""Writes python/vllm_router/option_types.pyi, for type checkers: `make format` breaks its lines.

python scripts/option_types.py > python/vllm_router/option_types.pyi
"""

from __future__ import annotations

from collections.abc import Iterable

from vllm_router.router_args import FLAGS, POLICY_OPTIONS
from vllm_router.settings.flag import Flag
from vllm_router.settings.kinds import Choice, JsonObject, Number, NumberOr, Switch, Text, Words
from vllm_router.settings.policies import BUILT_POLICIES, POLICY_ALIASES

HEAD = '''\
"""Keywords of Router and names of policies, for type checkers: there is no such module when a program runs.

    if TYPE_CHECKING:
        from vllm_router.option_types import PolicyName, RouterOptions

scripts/option_types.py writes it.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

'''
# Arguments of their own.
_OF_ROUTER = ("policy", "worker_urls", "seed")
_OF_SERVE = ("host", "port")


def render() -> str:
    """The whole stub."""
    taken = {name: flag for name, flag in FLAGS.items() if not flag.not_built and name not in _OF_ROUTER}
    served = {name: flag for name, flag in taken.items() if name not in POLICY_OPTIONS}
    routing = {name: flag for name, flag in taken.items() if name in POLICY_OPTIONS or name in _OF_SERVE}
    return HEAD + "\n".join(
        [
            f"PolicyName = {_literal([*BUILT_POLICIES, *POLICY_ALIASES])}",
            "",
            *_class(
                "ServerOptions",
                "TypedDict",
                "Keywords of Router.serve().",
                {name: _type(flag) for name, flag in served.items() if name not in _OF_SERVE},
            ),
            *_class(
                "RouterOptions",
                "ServerOptions",
                "Keywords of Router.",
                {name: _type(flag) for name, flag in routing.items()},
            ),
        ]
    )


def _class(name: str, base: str, text: str, members: dict[str, str]) -> list[str]:
    lines = [f"    {member}: {kind}" for member, kind in members.items()]
    return [f"class {name}({base}, total=False):", f'    """{text}"""', "", *lines, ""]


def _type(flag: Flag) -> str:
    kind = flag.kind
    if isinstance(kind, NumberOr):
        found = f"{'int' if kind.whole else 'float'} | {_literal([kind.word])}"
    elif isinstance(kind, Number):
        found = "int" if kind.whole else "float"
    elif isinstance(kind, Switch):
        found = "bool"
    elif isinstance(kind, Choice):
        is_policy = set(kind.names) == set(BUILT_POLICIES)
        found = "PolicyName" if is_policy else _literal([*kind.names, *kind.aliases])
    elif isinstance(kind, JsonObject):
        found = "str | Mapping[str, Any]"
    elif isinstance(kind, Text):
        found = "str"
    elif isinstance(kind, Words):
        found = "list[str] | tuple[str, ...]"  # a str would be a Sequence[str]
    else:
        return "Any"
    return f"{found} | None" if flag.default is None else found


def _literal(names: Iterable[str]) -> str:
    quoted = [f'"{name}"' for name in names]
    return f"Literal[{', '.join(quoted)}]"


if __name__ == "__main__":
    print(render(), end="")
