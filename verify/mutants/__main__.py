"""Builds the tree once with all mutants in it, and runs the tests of each: `make mutants`.

    python -m verify.mutants                             all of them
    python -m verify.mutants --room http cache           of some lists
    python -m verify.mutants --number 3f2a91c            one, and what its tests say
    python -m verify.mutants --seconds 1200              as many as begin within twenty minutes

The copy of the tree and its build are in build/mutants, so that a second run compiles little. Tests must pass
with no mutant on; then a mutant is killed if one of its tests fails, or if they take five times as long as
without it. The table of results is build/mutants/results.txt. Exit status: 0, whatever survives; 1 if tests
fail without a mutant, or the build fails; 2 for a mistake.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from verify.mutants.mutant import HEADER, ROOT, ListError, Mutant, mutated, read_lists

BUILD = ROOT / "build" / "mutants"
TREE = BUILD / "tree"
RESULTS = BUILD / "results.txt"
SWITCH = "VLLM_ROUTER_MUTANT"

WARNINGS = "-Wno-error -Wno-parentheses"
LEAST_LIMIT_S = 60.0
SLOWER = 5
"""A mutant whose tests take this many times as long as without it hangs."""

SWITCH_HEADER = f"""// Which mutant is on, by the environment. Only a copy of the tree has this file.
#ifndef VLLM_ROUTER_BASE_MUTANT_H_
#define VLLM_ROUTER_BASE_MUTANT_H_

#include <cstdlib>

namespace vllm_router {{
inline bool MutantOn(long number) {{
  static const long on = [] {{
    const char* const text = std::getenv("{SWITCH}");
    return text != nullptr ? std::strtol(text, nullptr, 10) : 0;
  }}();
  return on == number;
}}
}}  // namespace vllm_router

#endif  // VLLM_ROUTER_BASE_MUTANT_H_
"""


@dataclasses.dataclass(frozen=True)
class Run:
    """Tests that ran, with a mutant or without."""

    passed: bool
    seconds: float
    why: str
    """The first test that failed, or that they took too long."""
    output: str


def write(path: Path, text: bytes) -> None:
    if path.is_file() and path.read_bytes() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


def copy_tree(mutants: Sequence[Mutant]) -> None:
    """The files of the repository, of which those with mutants have all of them."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    names = [name for name in names if name and (ROOT / name).is_file()]
    of_file = collections.defaultdict(list)
    for mutant in mutants:
        of_file[mutant.file].append(mutant)
    of_folder = collections.defaultdict(list)
    for file in of_file:
        of_folder[str(Path(file).parent)].append(Path(file).name)
    for name in names:
        text = (ROOT / name).read_bytes()
        if name in of_file:
            text = mutated(text.decode(), of_file[name]).encode()
        folder, _, file = name.rpartition("/")
        if file == "CMakeLists.txt" and folder in of_folder:
            sources = " ".join(sorted(of_folder[folder]))
            text += f"set_property(SOURCE {sources} APPEND PROPERTY COMPILE_OPTIONS {WARNINGS})\n".encode()
        write(TREE / name, text)
        shutil.copymode(ROOT / name, TREE / name)
    write(TREE / "cpp" / HEADER, SWITCH_HEADER.encode())
    wanted = {TREE / name for name in names} | {TREE / "cpp" / HEADER}
    for path in [path for path in TREE.rglob("*") if path.is_file() and path not in wanted]:
        if "build" not in path.relative_to(TREE).parts[:1] and "__pycache__" not in path.parts:
            path.unlink()


def build(jobs: int) -> bool:
    environment = os.environ | {"CCACHE_NOHASHDIR": "1", "CCACHE_BASEDIR": str(TREE)}
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    steps = [
        [
            "cmake",
            "--preset",
            "release",
            f"-DPython_EXECUTABLE={sys.executable}",
            "-DROUTER_GROUP_SOURCES=OFF",
            *launcher,
        ],
        ["cmake", "--build", "build/release", "-j", str(jobs), "--target", "_core_testing", "python_package"],
    ]
    return all(subprocess.run(step, cwd=TREE, env=environment, check=False).returncode == 0 for step in steps)


def run_tests(tests: Sequence[str], mutant: int, limit_s: float) -> Run:
    environment = os.environ | {
        "PYTHONPATH": str(TREE / "build" / "release" / "python"),
        SWITCH: str(mutant),
    }
    options = ["-p", "no:cacheprovider", "-x", "-q", "--no-header", "--tb=short"]
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=TREE,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
        late = False
    except subprocess.TimeoutExpired:
        late = True
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    seconds = time.monotonic() - begun
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    why = "hangs" if late else failed[1] if failed else f"exit status {process.returncode}"
    passed = not late and process.returncode == 0
    return Run(passed, seconds, "" if passed else why, output)


def table(results: Iterable[tuple[Mutant, Run]]) -> str:
    """Shares by room, then those that survived, then all."""
    results = sorted(results, key=lambda one: (one[0].room, one[0].line))
    rooms = collections.Counter(mutant.room for mutant, _ in results)
    killed = collections.Counter(mutant.room for mutant, run in results if not run.passed)
    seconds = collections.Counter[str]()
    for mutant, run in results:
        seconds[mutant.room] += round(run.seconds)
    lines = [f"{'room':<16} {'mutants':>7} {'killed':>6} {'share':>6} {'seconds':>7}"]
    for room in sorted(rooms):
        share = killed[room] / rooms[room]
        lines.append(f"{room:<16} {rooms[room]:>7} {killed[room]:>6} {share:>6.1%} {seconds[room]:>7}")
    share = killed.total() / max(rooms.total(), 1)
    lines.append(f"{'all':<16} {rooms.total():>7} {killed.total():>6} {share:>6.1%} {seconds.total():>7}")
    lines += ["", "survived:"]
    lines += [
        f"  {mutant.number:x} {mutant.room}.txt:{mutant.line} {mutant}"
        for mutant, run in results
        if run.passed
    ]
    lines += ["", "killed:"]
    lines += [
        f"  {mutant.number:x} {run.seconds:6.1f} s {mutant.room}.txt:{mutant.line} by {run.why}"
        for mutant, run in results
        if not run.passed
    ]
    return "\n".join(lines) + "\n"


def run_all(mutants: Sequence[Mutant], jobs: int, until_s: float) -> int:
    without: dict[tuple[str, ...], Run] = {}
    results: list[tuple[Mutant, Run]] = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        sets = list(dict.fromkeys(mutant.tests for mutant in mutants))
        print(f"{len(sets)} sets of tests, without a mutant", flush=True)
        for tests, run in zip(sets, pool.map(lambda one: run_tests(one, 0, 900.0), sets), strict=True):
            without[tests] = run
            if not run.passed:
                print(f"fails without a mutant: {run.why}\n{run.output[-2000:]}", flush=True)

        def look(mutant: Mutant) -> tuple[Mutant, Run] | None:
            normal = without[mutant.tests]
            if not normal.passed or time.monotonic() > until_s:
                return None
            limit_s = max(LEAST_LIMIT_S, SLOWER * normal.seconds)
            return mutant, run_tests(mutant.tests, mutant.number, limit_s)

        for number, result in enumerate(pool.map(look, mutants), 1):
            if result is None:
                continue
            mutant, run = result
            results.append(result)
            said = f"killed by {run.why}" if run.why else "SURVIVED"
            print(f"{number}/{len(mutants)} {run.seconds:5.1f} s {mutant}: {said}", flush=True)
            RESULTS.write_text(table(results))
            if len(mutants) == 1:
                print(run.output)
    print(table(results).split("\nkilled:")[0])
    print(f"{len(mutants) - len(results)} were not run; the whole table is in {RESULTS}")
    return 0 if all(run.passed for run in without.values()) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m verify.mutants", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--room", nargs="+", default=[], help="only of these lists, such as http")
    parser.add_argument("--number", nargs="+", default=[], help="only these, by their numbers in the table")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once (default 2)")
    parser.add_argument("--build-jobs", type=int, default=os.cpu_count() or 2, help="compilers at once")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin none after this time")
    parser.add_argument("--build-only", action="store_true", help="copy and build, and run none")
    parser.add_argument("--no-build", action="store_true", help="run with the build of last time")
    args = parser.parse_args()
    until_s = time.monotonic() + args.seconds
    try:
        mutants = read_lists()
        if not args.no_build:
            copy_tree(mutants)
    except ListError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    if not args.no_build and not build(args.build_jobs):
        print("mutants: the copy does not compile; a place may be a constant expression", file=sys.stderr)
        return 1
    if args.build_only:
        return 0
    wanted = [
        mutant
        for mutant in mutants
        if (not args.room or mutant.room in args.room)
        and (not args.number or f"{mutant.number:x}" in args.number)
    ]
    if not wanted:
        print(
            "mutants: none is wanted; --room takes names of lists, --number numbers of the table",
            file=sys.stderr,
        )
        return 2
    random.Random(1).shuffle(wanted)  # so that a part of them is of all rooms
    return run_all(wanted, args.jobs, until_s)


if __name__ == "__main__":
    sys.exit(main())
