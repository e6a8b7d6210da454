"""vllm_router/option_types.pyi: what type checkers know of keywords and policies."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.option_types import render
from vllm_router.router_args import FLAGS

ROOT = Path(__file__).parents[3]
STUB = ROOT / "python" / "vllm_router" / "option_types.pyi"

# Each line is right, or has what a checker says of it.
PROGRAM = """
from vllm_router import PolicyType, Router

router = Router("cache_aware", ["http://a:1"], cache_threshold=0.3, block_size="auto", port=8080)
router = Router(PolicyType.CacheAware, seed=1, prefill_policy=None)
router = Router("cach_aware")  # Argument 1 to "Router" has incompatible type
router = Router("auto", cache_treshold=0.3)  # Unexpected keyword argument "cache_treshold"
router = Router("auto", block_size="8")  # Argument "block_size" to "Router" has incompatible type
server = router.serve(port=0, threads=2, kv_events="off", worker_dns=["http://a:1"])
server = router.serve(thread=2)  # Unexpected keyword argument "thread"
server = router.serve(kv_events="of")  # Argument "kv_events" to "serve" of "Router" has incompatible type
server = router.serve(worker_dns="http://a:1")  # Argument "worker_dns" to "serve" of "Router" has
server = router.serve(virtual_nodes=3)  # Unexpected keyword argument "virtual_nodes"
"""


def test_the_stub_is_what_the_settings_say() -> None:
    assert ast.dump(ast.parse(STUB.read_text())) == ast.dump(ast.parse(render())), (
        "run: python scripts/option_types.py > python/vllm_router/option_types.pyi; make format"
    )


def test_every_setting_that_is_built_is_a_keyword() -> None:
    classes = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef)]
    named = {
        one.target.id
        for node in classes
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    built = {name for name, flag in FLAGS.items() if not flag.not_built}
    assert named == built - {"policy", "worker_urls", "seed"}


def test_a_type_checker_knows_keywords_and_policies(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--follow-imports=silent"]
    command += ["--config-file=", f"--cache-dir={tmp_path / 'cache'}", str(program)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=110, check=False, cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "python"), "PATH": ""},
    )  # fmt: skip
    said: dict[int, str] = {}
    for line in done.stdout.splitlines():
        _, number, kind, sentence = line.split(":", 3)
        if kind.strip() == "error":
            said[int(number)] = sentence.strip()
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        expected = line.partition("  # ")[2]
        assert said.pop(number, "").startswith(expected) if expected else number not in said, (line, said)
    assert said == {}
