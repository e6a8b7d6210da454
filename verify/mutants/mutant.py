"""Mutants: small wrong changes of the code, which tests should notice. The .txt files beside this list them.

    # a comment
    @ cpp/worker/worker_url.cc: tests/unit/worker/test_worker_url.py
    - return url.tls ? 443 : 80;
    + return 80;

`@` names a file and the tests that should fail, for all mutants down to the next `@`. Lines with `-` are the
old text, which stands in the file once, and lines with `+` the new one; an empty one removes a statement. A
text is

- one or more statements, if it ends with `;`. Of a declaration its initial value changes;
- the head of a block, `if (...) {`, of which the condition changes;
- an expression otherwise. It may be a part of a larger one.

All are compiled at once, each behind a switch (compile_in). So no place may be in a constant expression.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

LISTS = Path(__file__).parent
ROOT = LISTS.parents[1]
HEADER = "base/mutant.h"

DECLARATION = re.compile(
    r"(?P<name>(?:const )?[A-Za-z_][\w:<>]*[*&]? [A-Za-z_]\w* = )(?P<value>.*);", re.DOTALL
)
CONDITION = re.compile(r"(?P<head>(?:\} else )?if \(|while \()(?P<condition>.*)\) \{", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Mutant:
    room: str
    file: str
    tests: tuple[str, ...]
    old: str
    new: str
    line: int
    """Where it stands in its list."""

    @property
    def number(self) -> int:
        """The same whatever mutants come before it, so that an edit of a list compiles one file anew."""
        digest = hashlib.sha256("\0".join((self.file, self.old, self.new)).encode())
        return int(digest.hexdigest()[:7], 16)

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())} -> {' '.join(self.new.split()) or '(nothing)'}"


class ListError(Exception):
    pass


def read_list(path: Path) -> Iterator[Mutant]:
    """The mutants of one list; its name is their room."""
    file, tests = "", ()
    old: list[str] = []
    new: list[str] = []
    begun = 0

    def ended() -> Iterator[Mutant]:
        if old and not new:
            raise ListError(f"{path.name}:{begun}: a mutant has no new text; write '+' to remove the old one")
        if old:
            yield Mutant(path.stem, file, tests, "\n".join(old), "\n".join(new).strip("\n"), begun)
        old.clear()
        new.clear()

    for number, line in enumerate(path.read_text().splitlines(), 1):
        kind, text = line[:1], line[2:]
        if kind == "+" and old:
            new.append(text)
            continue
        if kind == "-":
            if new:
                yield from ended()
            if not file:
                raise ListError(
                    f"{path.name}:{number}: a mutant without a file; write '@ FILE: TESTS' before it"
                )
            begun = begun if old else number
            old.append(text)
            continue
        yield from ended()
        if kind == "@":
            file, _, names = text.partition(": ")
            tests = tuple(names.split())
        elif line and kind != "#":
            raise ListError(f"{path.name}:{number}: {line!r} begins with none of @ - + #")
    yield from ended()


def read_lists(folder: Path = LISTS) -> list[Mutant]:
    return [mutant for path in sorted(folder.glob("*.txt")) for mutant in read_list(path)]


def compile_in(mutant: Mutant) -> str:
    """The old text and the new one, of which a switch chooses."""
    on = f"::vllm_router::MutantOn({mutant.number})"
    old, new = mutant.old, mutant.new
    for pattern in (CONDITION, DECLARATION):
        before, after = pattern.fullmatch(old), pattern.fullmatch(new)
        if before and after and before[1] == after[1]:
            end = old[before.end(2) :]
            return f"{before[1]}({on} ? ({after[2]}) : ({before[2]})){end}"
    if old.endswith(";"):
        if DECLARATION.fullmatch(old):
            raise ListError(f"{mutant}: both declare one name, of one type")
        return f"{{ if ({on}) {{ {new} }} else {{ {old} }} }}"
    if not new:
        raise ListError(f"{mutant}: a statement can be removed, and this is an expression")
    return f"({on} ? ({new}) : ({old}))"


def mutated(source: str, mutants: Iterable[Mutant]) -> str:
    """A file with all its mutants."""
    places = []
    for mutant in mutants:
        count = source.count(mutant.old)
        if count != 1:
            raise ListError(f"{mutant}: the old text stands {count} times in the file, and must once")
        at = source.index(mutant.old)
        places.append((at, at + len(mutant.old), mutant))
    places.sort(key=lambda place: place[0])
    out = [f'#include "{HEADER}"\n']
    end = 0
    for begin, behind, mutant in places:
        if begin < end:
            raise ListError(f"{mutant}: its old text is in that of another mutant")
        out += [source[end:begin], compile_in(mutant)]
        end = behind
    return "".join([*out, source[end:]])
