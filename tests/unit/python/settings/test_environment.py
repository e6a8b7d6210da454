"""vllm_router.settings.environment: what variables set, and what comes before them."""

from pathlib import Path

import pytest

from vllm_router.launch_router import parse_router_args
from vllm_router.settings.environment import NAMES, settings_of_environment
from vllm_router.settings.names import FLAGS

DYNAMO = {"DYN_SHARED_CACHE_TYPE": "hicache", "DYN_SHARED_CACHE_MULTIPLIER": "0.5"}


def test_dynamos_variables_are_read_and_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert settings_of_environment(DYNAMO) == {"shared_cache_type": "hicache", "shared_cache_multiplier": 0.5}
    assert caplog.messages == [
        f"{FLAGS[name].spelling} is taken from DYN_{name.upper()} of the environment" for name in NAMES
    ]


def test_ours_come_before_dynamos() -> None:
    ours = {"VLLM_ROUTER_SHARED_CACHE_MULTIPLIER": "0.3"}
    assert settings_of_environment(DYNAMO | ours)["shared_cache_multiplier"] == 0.3


def test_empty_ones_are_not_set() -> None:
    assert settings_of_environment({"DYN_SHARED_CACHE_TYPE": " ", "OTHER": "x"}) == {}


def test_a_value_that_does_not_fit_is_rejected() -> None:
    with pytest.raises(ValueError, match="DYN_SHARED_CACHE_MULTIPLIER of the environment is '2'; it must"):
        settings_of_environment({"DYN_SHARED_CACHE_MULTIPLIER": "2"})


def test_the_line_comes_first_and_the_file_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "router.yaml"
    file.write_text("shared_cache_multiplier: 0.1\nshared_cache_type: none\nport: 8080\n")
    for name, value in DYNAMO.items():
        monkeypatch.setenv(name, value)
    line = ["--config", str(file), "--shared-cache-multiplier", "0.9"]
    found = parse_router_args(line)
    assert (found.shared_cache_multiplier, found.shared_cache_type, found.port) == (0.9, "hicache", 8080)
    assert parse_router_args(line[:2]).shared_cache_multiplier == 0.5
