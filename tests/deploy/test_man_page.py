"""What is made or printed twice: the man page and the flags, the systemd unit and its page."""

from scripts.man_page import render
from tests.deploy.manifests import ROOT
from vllm_router.settings.names import FLAGS

MAN_PAGE = ROOT / "deploy" / "man" / "vllm-router.1"
UNIT = (ROOT / "deploy" / "systemd" / "vllm-router.service").read_text()
TEMPLATE = (ROOT / "deploy" / "systemd" / "vllm-router@.service").read_text()


def test_the_man_page_is_what_the_flags_say() -> None:
    assert MAN_PAGE.read_text() == render(), "run: python scripts/man_page.py > deploy/man/vllm-router.1"


def test_the_man_page_has_every_flag_that_is_built() -> None:
    lines = MAN_PAGE.read_text().splitlines()
    flags = [flag for flag in FLAGS.values() if flag.on_command_line and not flag.not_built]
    terms = {line.split("\\fR")[0] for line in lines if line.startswith("\\fB")}
    assert not {"\\fB" + flag.spelling.replace("-", "\\-") for flag in flags} - terms


def test_run_in_production_shows_the_unit() -> None:
    page = (ROOT / "docs" / "how-to" / "run_in_production.md").read_text()
    assert f"```ini\n# /etc/systemd/system/vllm-router.service\n{UNIT}```\n" in page, "copy the unit there"


def test_the_template_differs_in_what_two_instances_need() -> None:
    ours, theirs = UNIT.splitlines(), TEMPLATE.splitlines()
    assert [line for line in ours if line not in theirs] == [
        "Description=vllm-router",
        "ExecStart=/opt/vllm-router/bin/vllm-router --config /etc/vllm-router/router.yaml",
    ]
    assert [line for line in theirs if line not in ours] == [
        "Description=vllm-router (%i)",
        "ExecStart=/opt/vllm-router/bin/vllm-router --config /etc/vllm-router/router.yaml --reuse-port",
        "# Processes share a port only if they run as one user, so that all instances have the same.",
    ]
