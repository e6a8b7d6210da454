"""`vllm-router --help`: the usual flags, all of them, those of a group, one."""

import re

import pytest

from vllm_router import _help
from vllm_router.launch_router import _make_parser
from vllm_router.router_args import FLAGS


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        _make_parser().parse_command(["--help", *words])
    assert not ended.value.code
    text: str = capsys.readouterr().out
    return text


def flags_in(text: str) -> list[str]:
    return re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE)


def test_help_shows_the_usual_flags_and_names_the_groups(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys)
    usual = {FLAGS[name].spelling for name in _help.COMMON}
    assert set(flags_in(text)) == usual | {"--help", "--version", "--config"}
    listed = " ".join(text.split("The groups: ")[1].split()).rstrip(".").split("; ")
    built = [flag for flag in FLAGS.values() if flag.on_command_line and not flag.not_built]
    groups = {flag.group for flag in built if not flag.no_effect}
    assert set(listed) == groups | {"Accepted from older scripts, without effect"}
    assert "--help all" in text
    assert "The HTTP port to listen on (30000)." in text
    assert max(map(len, text.splitlines())) <= 110


def test_help_all_shows_every_flag_that_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    built = {flag.spelling for flag in FLAGS.values() if flag.on_command_line and not flag.not_built}
    assert set(flags_in(shown(capsys, "all"))) == built | {"--help", "--version", "--config"}


@pytest.mark.parametrize("asked", ["prefill/decode", "Prefill-decode", "decode"])
def test_help_of_a_group_shows_its_flags(capsys: pytest.CaptureFixture[str], asked: str) -> None:
    if asked == "decode":  # the name of a flag counts before that of a group
        assert flags_in(shown(capsys, asked)) == ["--decode"]
        return
    wanted = [
        flag.spelling
        for flag in FLAGS.values()
        if flag.group == "Prefill/decode" and flag.on_command_line and not flag.not_built
    ]
    assert flags_in(shown(capsys, asked)) == wanted


@pytest.mark.parametrize("asked", ["policy", "POLICY", "max_payload_size", "data-parallel-size"])
def test_help_of_a_flag_shows_its_whole_text(capsys: pytest.CaptureFixture[str], asked: str) -> None:
    text = shown(capsys, asked)
    wanted = {"data-parallel-size": "--intra-node-data-parallel-size"}
    assert flags_in(text) == [wanted.get(asked, "--" + asked.lower().replace("_", "-"))]
    assert ":" in text.splitlines()[0]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("polcy", "--help polcy: no group or flag has that name; did you mean policy?"),
        ("xyzzy", "--help xyzzy: no group or flag has that name"),
    ],
)
def test_a_name_that_nothing_has_is_rejected(
    capsys: pytest.CaptureFixture[str], asked: str, told: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        _make_parser().parse_command(["--help", asked])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
