"""What .ci/run begins, stops and prints, with commands that only move a clock."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MINUTE = 60

TOOLS = ("cat", "dirname", "find", "grep", "mkdir", "rm", "sed", "sh", "sort", "tail")
STUBS = {
    "bin/date": "cat clock",
    # What runs moves the clock by what the plan says, or up to its limit.
    "bin/timeout": """
shift 2
limit=$1
shift
[ "$1" = make ] || { echo 10 >>begun; exec "$@"; }
limit=$limit "$@"
""",
    "bin/make": """
echo "$1" >>begun
set -- $(grep "^$1 " plan || echo "$1 60 0")
seconds=$2 code=$3
if [ "$seconds" -ge "$limit" ]; then seconds=$limit code=124; fi
echo $(($(cat clock) + seconds)) >clock
sed -i "0,/^$1 /{/^$1 /d}" plan
exit $code
""",
    "bin/clang++-14": "",
    "scripts/install_deps.sh": "",
    "scripts/sanitized.sh": """
echo "$1 is not allowed here"
! grep -q "^$1\\$" forbidden
""",
}


@pytest.fixture
def ci(tmp_path):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    for name, body in STUBS.items():
        stub = tmp_path / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(f"#!/bin/sh\n{body}")
        stub.chmod(0o755)
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    return tmp_path


def run(ci, *plan, forbidden="", begins=1_000_000):
    """Ends after how many seconds with which status, what it began, and the lines after the table's head."""
    (ci / "plan").write_text("".join(f"{step}\n" for step in plan))
    (ci / "forbidden").write_text(f"{forbidden}\n")
    (ci / "clock").write_text(f"{begins}\n")
    (ci / "begun").write_text("")
    done = subprocess.run(
        [ci / ".ci" / "run"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{ci}/bin"},
    )
    assert done.stderr == ""
    seconds = int((ci / "clock").read_text()) - begins
    _, _, last = done.stdout.rpartition("\n== seconds of each part")
    notes = [line for line in last.splitlines()[1:] if not line.strip()[:1].isdigit()]
    return seconds, done.returncode, (ci / "begun").read_text().split(), notes


def test_with_time_enough_every_part_runs_the_mandatory_ones_first(ci):
    _, status, begun, notes = run(ci)
    assert status == 0
    assert begun[1:8] == ["deps", "build", "test", "lint", "stress-asan", "stress-tsan", "wheel"]
    assert begun[8:] == ["sanitize-asan", "bench-smoke", "property", "sanitize-tsan", "fuzz"]
    assert notes == ["== all good"]


def test_the_summary_on_github_has_the_last_lines(ci):
    def summary():
        return subprocess.run(
            [ROOT / "scripts" / "ci_summary.sh"], cwd=ci, capture_output=True, text=True, check=True
        )

    assert "It did not begin." in summary().stdout
    run(ci)
    assert "Everything ran; nothing was flaky." in summary().stdout
    run(ci, "sanitize-asan 100000 0")
    lines = summary().stdout.splitlines()
    assert "NOT RUN TO THE END: proxy tests under ASan, UBSan (stopped after 1500 s)" in lines
    assert "  1500 s  proxy tests under ASan, UBSan" in lines


def test_the_table_has_the_seconds_of_each_part(ci):
    run(ci, "build 123 0")
    assert "   123 s  build" in (ci / "build" / "ci" / "table").read_text().splitlines()


def test_nothing_optional_begins_after_minute_60(ci):
    _, status, begun, notes = run(ci, f"build {40 * MINUTE} 0", f"test {15 * MINUTE} 0")
    assert status == 0
    assert begun[-2:] == ["stress-tsan", "wheel"]
    assert notes[:-1] == [
        "NOT RUN: benchmark smoke (minute 60; nothing optional begins after minute 60)",
        "NOT RUN: fuzz targets (minute 60; nothing optional begins after minute 60)",
        "NOT RUN: property tests, new examples (minute 60; nothing optional begins after minute 60)",
        "NOT RUN: proxy tests under ASan, UBSan (minute 60; nothing optional begins after minute 60)",
        "NOT RUN: proxy tests under TSan (minute 60; nothing optional begins after minute 60)",
    ]


def test_an_optional_part_that_hangs_is_stopped_and_does_not_fail_the_run(ci):
    _, status, begun, notes = run(ci, "sanitize-asan 100000 0")
    assert status == 0
    assert begun[-1] == "fuzz"
    assert notes == [
        "NOT RUN TO THE END: proxy tests under ASan, UBSan (stopped after 1500 s)",
        "== all good",
    ]


def test_what_began_before_minute_60_ends_before_minute_80(ci):
    seconds, status, _, notes = run(
        ci, f"build {44 * MINUTE} 0", f"test {9 * MINUTE} 0", "sanitize-asan 100000 0"
    )
    assert seconds == 80 * MINUTE
    assert status == 0
    assert notes[0].startswith("NOT RUN TO THE END: proxy tests under ASan")


def test_an_optional_part_that_fails_fails_the_run_after_the_others(ci):
    _, status, begun, notes = run(ci, "wheel 5 2")
    assert status == 1
    assert begun[-1] == "fuzz"
    assert notes == ["FAILED: wheel", "== FAILED"]


def test_what_random_inputs_find_is_named_and_does_not_fail_the_run(ci):
    _, status, begun, notes = run(ci, "property 5 1", "fuzz 5 1")
    assert status == 0
    assert begun[-1] == "fuzz"
    assert notes == [
        "FOUND: something by fuzz targets (see above, the seed too)",
        "FOUND: something by property tests, new examples (see above, the seed too)",
        "== all good",
    ]


def test_what_random_inputs_find_is_named_so_in_a_run_that_has_failed_already(ci):
    _, status, _, notes = run(ci, "wheel 5 2", "property 5 1")
    assert status == 1
    assert notes == [
        "FAILED: wheel",
        "FOUND: something by property tests, new examples (see above, the seed too)",
        "== FAILED",
    ]


def test_what_a_sanitizer_found_before_it_was_stopped_is_a_failure(ci):
    make = ci / "bin" / "make"
    found = '[ "$1" != sanitize-tsan ] || { mkdir -p build/tsan/reports; echo race >build/tsan/reports/1; }\n'
    make.write_text(make.read_text().replace('echo "$1" >>begun\n', f'echo "$1" >>begun\n{found}'))
    _, status, _, notes = run(ci, "sanitize-tsan 100000 0")
    assert status == 1
    assert notes == ["FAILED: proxy tests under TSan", "== FAILED"]


def test_what_a_sanitizer_found_belongs_to_no_part_but_its_own(ci):
    make = ci / "bin" / "make"
    found = '[ "$1" != sanitize-asan ] || { mkdir -p build/asan/reports; echo leak >build/asan/reports/1; }\n'
    make.write_text(make.read_text().replace('echo "$1" >>begun\n', f'echo "$1" >>begun\n{found}'))
    _, status, _, notes = run(ci, "sanitize-asan 5 1", "bench-smoke 100000 0", "property 100000 0")
    assert status == 1
    assert notes == [
        "FAILED: proxy tests under ASan, UBSan",
        "NOT RUN TO THE END: benchmark smoke (stopped after 900 s)",
        "NOT RUN TO THE END: property tests, new examples (stopped after 900 s)",
        "== FAILED",
    ]


@pytest.mark.parametrize("target", ["deps", "build", "lint"])
def test_a_mandatory_part_that_fails_ends_the_run(ci, target):
    _, status, begun, notes = run(ci, f"{target} 5 2")
    assert status == 1
    assert begun[-1] == target
    assert [line.partition(":")[0] for line in notes] == ["FAILED", "== FAILED"]


def test_a_mandatory_part_that_hangs_ends_the_run_under_its_name(ci):
    seconds, status, begun, notes = run(ci, "lint 100000 0")
    assert (status, begun[-1]) == (1, "lint")
    assert notes == ["TIMED OUT: lint (not done within 900 s)", "== FAILED"]
    assert seconds < 80 * MINUTE


@pytest.mark.parametrize("target", ["build", "test"])
def test_even_mandatory_parts_are_over_by_minute_80(ci, target):
    slow = [f"{name} {20 * MINUTE} 0" for name in ("deps", "build")]
    seconds, status, _, notes = run(ci, f"{target} 100000 0", *slow, f"test {40 * MINUTE} 0")
    assert seconds <= 80 * MINUTE
    assert status == 1
    assert notes[0].startswith("TIMED OUT: ")


def test_a_test_that_failed_once_and_passed_alone_is_named_as_flaky(ci):
    make = ci / "bin" / "make"
    cache = '{\n  "tests/test_a.py::test_b": true,\n  "tests/test_a.py::test_c[x y]": true\n}'
    failed = (
        'case "$*" in "test PYTEST_ARGS=-n 2 "*) cache=${2##*cache_dir=}; mkdir -p $cache/v/cache\n'
        f"echo '{cache}' >$cache/v/cache/lastfailed ;; esac\n"
    )
    make.write_text(make.read_text().replace('echo "$1" >>begun\n', f'echo "$1" >>begun\n{failed}'))
    _, status, begun, notes = run(ci, "test 60 2", "test 1 0")
    assert status == 0
    assert begun.count("test") == 2
    assert notes == [
        "FLAKY: tests/test_a.py::test_b (failed among others, passed alone)",
        "FLAKY: tests/test_a.py::test_c[x y] (failed among others, passed alone)",
        "== all good",
    ]


def test_a_test_that_fails_twice_fails_the_run(ci):
    _, status, begun, notes = run(ci, "test 60 2", "test 1 2")
    assert (status, begun[-1]) == (1, "test")
    assert notes == ["FAILED: failed tests, alone", "== FAILED"]


def test_the_tests_that_failed_are_named(ci):
    make = ci / "bin" / "make"
    failed = (
        'case "$*" in "test "*|"property "*) cache=${2##*cache_dir=}; cache=${cache%% *}\n'
        "mkdir -p $cache/v/cache\n"
        'echo \'{"tests/test_a.py::test_b": true}\' | sed "s/[{}]/\\n/g" >$cache/v/cache/lastfailed ;; esac\n'
    )
    make.write_text(make.read_text().replace('echo "$1" >>begun\n', f'echo "$1" >>begun\n{failed}'))
    assert run(ci, "test 60 2", "test 1 2")[3] == [
        "FAILED: failed tests, alone",
        "FAILED: tests/test_a.py::test_b",
        "== FAILED",
    ]
    assert run(ci, "property 60 2")[3] == [
        "FOUND: something by property tests, new examples (see above, the seed too)",
        "FOUND: tests/test_a.py::test_b",
        "== all good",
    ]


def test_tests_that_hang_are_not_run_once_more(ci):
    _, status, begun, notes = run(ci, "test 100000 0")
    assert (status, begun.count("test")) == (1, 1)
    assert notes == ["TIMED OUT: tests (not done within 2700 s)", "== FAILED"]


def test_a_sanitizer_that_cannot_start_is_named_and_what_needs_it_is_not_run(ci):
    _, status, begun, notes = run(ci, forbidden="tsan")
    assert status == 0
    assert {"stress-tsan", "sanitize-tsan"} & set(begun) == set()
    assert notes == [
        "NOT RUN: proxy tests under TSan (tsan is not allowed here)",
        "NOT RUN: stress programs under TSan (tsan is not allowed here)",
        "== all good",
    ]


def test_without_clang_no_fuzz_target_runs(ci):
    (ci / "bin" / "clang++-14").unlink()
    _, status, begun, notes = run(ci)
    assert (status, "fuzz" in begun) == (0, False)
    assert notes[0] == "NOT RUN: fuzz targets (no clang++-14 here)"
