"""The file of priority classes of a served router: read at the start, by a reload, and when it changes."""

import json
import urllib.request

import pytest

from tests.fakes.wire import eventually
from vllm_router import Router

FILE = "classes:\n  - {name: batch, queue_size: 7}\n"
QUIET = {"health_check_interval_secs": 0, "model_refresh_secs": 0, "kv_events": "off"}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "classes.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def server(path):
    router = Router(worker_urls=["http://127.0.0.1:9"], policy="round_robin")
    with router.serve(admission_config=str(path), **QUIET) as server:
        yield server


def batch_size(server):
    with urllib.request.urlopen(server.url + "/admin/admission", timeout=30) as answer:
        page = json.load(answer)
    return page["classes"][2]["queue_size"] if page["enabled"] else None


def test_a_reload_reads_it_again(server, path):
    assert batch_size(server) == 7
    path.write_text(FILE.replace("7", "8"))
    assert server.reload().warnings == ()
    assert batch_size(server) == 8


def test_a_dry_run_changes_nothing(server, path):
    path.write_text(FILE.replace("7", "x"))
    (warning,) = server.reload(dry_run=True).warnings
    assert "line 2: classes[0].queue_size is x" in warning
    assert batch_size(server) == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "classes:\n  - {name: batch, queue_size: -1}\n",
            "classes.yaml, line 2: classes[0].queue_size is -1",
        ),
        ("classes: [", "classes.yaml is not YAML"),
        (None, "cannot be read"),
    ],
    ids=["value", "yaml", "gone"],
)
def test_a_mistake_changes_nothing(server, path, text, message):
    path.unlink() if text is None else path.write_text(text)
    (warning,) = server.reload().warnings
    assert message in warning
    assert warning.endswith("The previous priority classes stay in force")
    assert batch_size(server) == 7


def test_it_is_watched(server, path):
    path.write_text(FILE.replace("7", "9"))
    eventually(lambda: batch_size(server) == 9)


def test_a_call_of_the_admin_port_reads_it_again(server, path):
    path.write_text(FILE.replace("7", "-1"))
    call = urllib.request.Request(server.url + "/admin/reload", method="POST")
    with urllib.request.urlopen(call, timeout=30) as answer:
        assert "queue_size is -1" in json.load(answer)["warnings"][0]


def test_a_mistake_at_the_start_is_an_error(path):
    path.write_text("classes: []\n")
    router = Router(worker_urls=["http://127.0.0.1:9"], policy="round_robin")
    with pytest.raises(ValueError, match="line 1: classes is"):
        router.serve(admission_config=str(path), **QUIET)
