"""Each fuzz target takes every file of its corpus without harm; `make fuzz` looks for new ones."""

import subprocess
from pathlib import Path

import vllm_router._core
from tests.rows import for_each_row

HERE = Path(__file__).parent
# The build of the extension, build/<preset>/python/vllm_router/_core.so, has the programs too.
PROGRAMS = Path(vllm_router._core.__file__).parents[2] / "tests" / "fuzz"
TARGETS = sorted(source.stem for source in HERE.glob("*.cc") if source.stem != "replay")


@for_each_row("target", TARGETS)
def test_a_target_takes_its_corpus_without_harm(target):
    corpus = sorted((HERE / "corpus" / target).iterdir())
    assert corpus != []
    replay = subprocess.run(
        [PROGRAMS / f"replay_{target}", *corpus], capture_output=True, text=True, timeout=110, check=False
    )
    assert replay.returncode == 0, f"after {replay.stderr}"
