"""The man page that is made of the flags, and the systemd units."""

from scripts.man_page import render
from tests.deploy.manifests import ROOT
from vllm_router.settings.names import FLAGS

UNIT = (ROOT / "deploy" / "systemd" / "vllm-router.service").read_text()
TEMPLATE = (ROOT / "deploy" / "systemd" / "vllm-router@.service").read_text()


def test_the_man_page_has_every_flag_that_is_built() -> None:
    lines = render().splitlines()
    flags = [flag for flag in FLAGS.values() if flag.on_command_line and not flag.not_built]
    terms = {line.split("\\fR")[0] for line in lines if line.startswith("\\fB")}
    assert not {"\\fB" + flag.spelling.replace("-", "\\-") for flag in flags} - terms


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
