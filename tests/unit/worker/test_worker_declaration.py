"""cpp/worker/worker_declaration.h: what the core reads of a WorkerSpec."""

import dataclasses

import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing
from vllm_router.discovery import WorkerSpec

DEFAULTS = {
    "url": "http://a:1",
    "worker_type": "regular",
    "bootstrap_port": None,
    "kv_group": "",
    "data_parallel_size": 0,
    "weight": 1.0,
    "ready": True,
    "leaving": False,
    "drain_secs": None,
    "incarnation": "",
    "detail": "",
    "models": [],
}
FULL = WorkerSpec(
    "http://a:1/",
    weight=2,
    ready=False,
    leaving=True,
    drain_secs=5,
    incarnation="uid-1",
    data_parallel_size=4,
    models=["m", "org/n"],
    labels={"pod": "default/vllm-7", "node": "n1"},
    worker_type="prefill",
    bootstrap_port=8998,
    kv_group="a/16",
)


def test_none_is_the_default():
    assert testing.read_fields(WorkerSpec("http://a:1")) == DEFAULTS


def test_each_field_is_read():
    read = testing.read_fields(FULL)
    assert read == {
        "url": "http://a:1",
        "worker_type": "prefill",
        "bootstrap_port": 8998,
        "kv_group": "a/16",
        "data_parallel_size": 4,
        "weight": 2.0,
        "ready": False,
        "leaving": True,
        "drain_secs": 5.0,
        "incarnation": "uid-1",
        "detail": "node=n1 pod=default/vllm-7",
        "models": ["m", "org/n"],
    }
    assert all(read[name] != default for name, default in DEFAULTS.items() if name != "url")


def test_the_core_has_the_fields_of_a_spec_and_no_others():
    fields = {field.name for field in dataclasses.fields(WorkerSpec)}
    assert set(DEFAULTS) == fields - {"labels"} | {"detail"}


@pytest.mark.parametrize(("name", "value"), [("weight", "heavy"), ("models", [1]), ("incarnation", "\ud800")])
def test_a_value_of_another_type_is_named(name, value):
    spec = WorkerSpec("http://a:1")
    object.__setattr__(spec, name, value)
    with pytest.raises(TypeError, match=f"^{name} of a worker is "):
        testing.read_fields(spec)
    router = Router()
    with pytest.raises(TypeError, match=f"^{name} of a worker is "):
        router.reconcile("mine", [spec])
    assert router.worker_urls == []
