"""vllm_router.completion: what the scripts hold, and what bash makes of its one."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_router.completion import SHELLS, commands, main
from vllm_router.launch_router import COMMANDS
from vllm_router.settings.names import FLAGS
from vllm_router.settings.policies import BUILT_POLICIES

BUILT = [flag for flag in FLAGS.values() if flag.on_command_line and not flag.not_built]
ALL = commands()
SCRIPTS = {shell: make(ALL) for shell, make in SHELLS.items()}


def replies(*words: str, cwd: Path | None = None) -> list[str]:
    """What bash offers for the last word. `=` is a word of its own, as bash parts a line."""
    bash = shutil.which("bash") or pytest.fail("there is no bash: install it")
    asked = f'{SCRIPTS["bash"]}\nCOMP_WORDS=(vllm-router "$@"); COMP_CWORD=$#; _vllm_router\n'
    asked += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        [bash, "--norc", "--noprofile", "-c", asked, "bash", *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=cwd,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_flag_and_command_is_in_the_script(shell: str) -> None:
    spelled = re.findall(r"(?<![\w-])-l ([\w-]+)" if shell == "fish" else r"--([\w-]+)", SCRIPTS[shell])
    assert not {flag.spelling[2:] for flag in BUILT} - set(spelled)
    assert not {command for command in COMMANDS if not re.search(rf"\b{command}\b", SCRIPTS[shell])}


def test_flags_that_are_not_built_or_former_are_left_out() -> None:
    left_out = [flag.spelling[2:] for flag in FLAGS.values() if flag.not_built]
    left_out += [alias.name.replace("_", "-") for flag in FLAGS.values() for alias in flag.former_names]
    (router, *_) = ALL
    names = {name for option in router.flags for name in option.names}
    assert left_out
    assert not names & {f"--{name}" for name in left_out}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([shell]) == 0
    assert capsys.readouterr().out == SCRIPTS[shell]


def test_a_shell_without_a_script_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tcsh"])
    assert ended.value.code == 2
    assert "tcsh" in capsys.readouterr().err


def test_bash_completes_commands_first() -> None:
    assert replies("") == list(COMMANDS)
    assert replies("sim") == ["simulate-worker"]
    assert replies("--port", "80", "sim") == []


def test_bash_completes_flags_of_the_command_that_is_named() -> None:
    expected = [name for option in ALL[0].flags for name in option.names if name.startswith("--kv-")]
    assert len(expected) > 10
    assert replies("--kv-") == expected
    assert replies("demo", "--kv-") == ["--kv-events"]
    assert replies("--port", "80", "--kv-e") == [name for name in expected if name.startswith("--kv-e")]


@pytest.mark.parametrize("before", [["--policy"], ["--policy", "="], ["--port", "80", "--policy"]])
def test_bash_completes_names_of_policies(before: list[str]) -> None:
    assert replies(*before, "") == list(BUILT_POLICIES)
    assert replies(*before, "pre") == [name for name in BUILT_POLICIES if name.startswith("pre")]


def test_bash_knows_spellings_with_underscores() -> None:
    assert replies("--log_level", "e") == ["error"]


def test_bash_completes_files_only_where_a_flag_takes_one(tmp_path: Path) -> None:
    (tmp_path / "router.yaml").touch()
    (tmp_path / "router.d").mkdir()
    assert sorted(replies("--config", "rou", cwd=tmp_path)) == ["router.d", "router.yaml"]
    assert replies("--log-dir", "rou", cwd=tmp_path) == ["router.d"]
    assert sorted(replies("replay", "rou", cwd=tmp_path)) == ["router.d", "router.yaml"]
    assert replies("--host", "rou", cwd=tmp_path) == []


@pytest.mark.parametrize("flag", [flag.spelling for flag in BUILT if flag.secret])
def test_bash_offers_nothing_for_a_secret(flag: str, tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    assert replies(flag, "", cwd=tmp_path) == []
    assert replies(flag, "--", cwd=tmp_path) == []


def test_a_script_that_cannot_be_written_is_an_error_and_a_closed_pipe_is_none() -> None:
    line = [sys.executable, "-m", "vllm_router.launch_router", "completion", "bash"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    said = "vllm-router: error: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as piped:
        assert piped.stdout is not None
        assert piped.stderr is not None
        piped.stdout.close()  # the interpreter has not begun to write
        assert (piped.stderr.read(), piped.wait(60)) == (b"", 0)
