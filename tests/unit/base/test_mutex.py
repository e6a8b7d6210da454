"""cpp/base/mutex.h: clang refuses what its annotations forbid, and no other mutex is in use."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.repo.rules import none_of

CPP = Path(__file__).parents[3] / "cpp"

PROGRAM = """
#include <condition_variable>
#include "base/mutex.h"
using vllm_router::Mutex;
using vllm_router::MutexLock;
static_assert(sizeof(Mutex) == sizeof(std::mutex));
static_assert(sizeof(MutexLock) == sizeof(std::unique_lock<std::mutex>));

class Account {
 public:
  int Use() { %s }
 private:
  void AddLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { ++total_; }
  Mutex mutex_;
  std::condition_variable changed_;
  int total_ ABSL_GUARDED_BY(mutex_) = 0;
};
int main() { return Account().Use() == 1 ? 0 : 1; }
"""
WAIT = "changed_.wait(lock.native(), [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return total_ == 1; });"
FINE = f"MutexLock lock(mutex_); AddLocked(); {WAIT} lock.Unlock(); lock.Lock(); return total_;"
WRONG = {
    "return total_;": "reading variable 'total_' requires holding mutex 'mutex_'",
    "AddLocked(); return 1;": "calling function 'AddLocked' requires holding mutex 'mutex_'",
    "MutexLock lock(mutex_); lock.Unlock(); return total_;": "reading variable 'total_' requires",
    "MutexLock one(mutex_); MutexLock two(mutex_); return 1;": "mutex 'mutex_' that is already held",
}


def compiled(tmp_path, body, compiler, *options):
    source = tmp_path / "program.cc"
    source.write_text(PROGRAM % body)
    command = [compiler, "-std=c++20", f"-I{CPP}", *options, str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_program_that_holds_what_it_must_compiles_and_runs(tmp_path):
    program = tmp_path / "program"
    done = compiled(tmp_path, FINE, "c++", "-Wall", "-Werror", "-pthread", "-o", str(program))
    assert done.stderr == ""
    assert subprocess.run([program], check=False).returncode == 0


@pytest.mark.skipif(shutil.which("clang++-14") is None, reason="only clang checks the annotations")
def test_clang_refuses_what_does_not_hold_the_mutex(tmp_path):
    check = ("clang++-14", "-fsyntax-only", "-Wthread-safety", "-Werror")
    assert compiled(tmp_path, FINE, *check).stderr == ""
    unnoticed = {
        body: said for body, said in WRONG.items() if said not in compiled(tmp_path, body, *check).stderr
    }
    assert unnoticed == {}


def test_no_other_mutex_or_lock_is_in_use():
    other = re.compile(r"\bstd::(mutex \w+;|(lock_guard|unique_lock|scoped_lock)\b)")
    wrong = [
        f"{path.relative_to(CPP)}:{number}: {line.strip()}"
        for path in sorted(CPP.rglob("*"))
        if path.suffix in (".h", ".cc") and path != CPP / "base" / "mutex.h"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if other.search(line)
    ]
    none_of(wrong, "clang checks only Mutex and MutexLock (base/mutex.h); use these")
