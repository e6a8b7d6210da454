"""vllm_router.settings.kubernetes: selectors, ports and names, on the command line, in YAML and in Python."""

import re
from typing import Any

import pytest

from tests.unit.python.settings.values import errors_of, parsed
from vllm_router.discovery.kubernetes import KubernetesOptions
from vllm_router.router_args import RouterArgs

SET = "tier in (a,b)"


@pytest.mark.parametrize(
    ("words", "selector"),
    [
        (["app=vllm"], {"app": "vllm"}),
        (
            ["app=vllm", "tier=", "vllm.ai/role==worker"],
            {"app": "vllm", "tier": "", "vllm.ai/role": "worker"},
        ),
        (["app=vllm,tier=a"], {"app": "vllm", "tier": "a"}),
        ([SET], [SET]),
        (["app=vllm", "!old"], ["app=vllm", "!old"]),
        ([f"app=vllm, {SET},old", "x notin ( c , d )", "y!=z"], None),
        (["app=a", "app=b"], ["app=a", "app=b"]),
    ],
)
def test_labels_are_a_mapping_where_they_can_be_one(words: list[str], selector: Any) -> None:
    expected = ["app=vllm", SET, "old", "x notin ( c , d )", "y!=z"] if selector is None else selector
    args = RouterArgs.from_dict({"selector": words})
    assert args.selector == expected
    assert RouterArgs.from_dict({"selector": args.selector}) == args
    assert RouterArgs.from_yaml(args.to_yaml()) == args


def test_a_selector_grows_on_the_command_line() -> None:
    assert parsed("--selector app=vllm --selector tier=a").selector == {"app": "vllm", "tier": "a"}
    assert parsed("--selector app=vllm --selector !old").selector == ["app=vllm", "!old"]
    assert RouterArgs.from_yaml(f"selector: app=vllm,{SET}").selector == ["app=vllm", SET]


@pytest.mark.parametrize(
    "term", ["app=a=b", "", "=a", "app in a", "app in ()x", "-a=b", f"app={'a' * 64}", "a b", "app>1"]
)
def test_a_term_that_kubernetes_would_refuse_is_refused_here(term: str) -> None:
    sentence = "labels such as app=vllm, 'tier in (a,b)' or '!old'"
    for selector in ([term], ["app=vllm", term]):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            RouterArgs(selector=selector)._validate_router_args()


@pytest.mark.parametrize("selector", [7, [7], {"app": 7}, {7: "a"}, {"a,b": "c"}, {"": ""}])
def test_what_is_no_selector(selector: Any) -> None:
    with pytest.raises(ValueError, match=r"selector is .*it is the labels of the workers' pods and must be"):
        RouterArgs(selector=selector)._validate_router_args()


@pytest.mark.parametrize(
    ("line", "ports"),
    [
        ("8000", 8000),
        ("http", "http"),
        ("8000 8001", [8000, 8001]),
        ("8000,metrics 8000", [8000, "metrics"]),
        ("8000 --service-discovery-port 8001", [8000, 8001]),
    ],
)
def test_ports_are_one_or_several(line: str, ports: Any) -> None:
    assert parsed(f"--service-discovery-port {line}").service_discovery_port == ports


def test_names_and_ports_come_from_a_file_in_every_form() -> None:
    for text, ports in (
        ("8000", 8000),
        ("'8000'", 8000),
        ("[8000, http]", [8000, "http"]),
        ("8000 http", None),
    ):
        args = RouterArgs.from_yaml(f"service_discovery_port: {text}")
        assert args.service_discovery_port == (ports or [8000, "http"])
    for text, names in (("a", "a"), ("[a, b]", ["a", "b"]), ("a, b", ["a", "b"]), ("null", None)):
        args = RouterArgs.from_yaml(f"service_discovery_namespace: {text}")
        assert args.service_discovery_namespace == names


@pytest.mark.parametrize(
    "port", [0, 65536, "65536", True, 80.0, "", "HTTP", "8000x!", "a" * 16, [], [80, None]]
)
def test_what_is_no_port_of_a_pod(port: Any) -> None:
    with pytest.raises(
        ValueError, match=r"it is the ports of each pod.* must be port numbers between 1 and 6"
    ):
        RouterArgs(service_discovery_port=port)._validate_router_args()


@pytest.mark.parametrize("name", ["", "Models", "a.b", "-a", "a-", "a" * 64, 7, [], ["a", 7]])
def test_what_is_no_name_of_a_namespace_or_a_service(name: Any) -> None:
    with pytest.raises(ValueError, match=r"it is the namespaces in which .* must be names of namespaces"):
        RouterArgs(service_discovery_namespace=name)._validate_router_args()
    with pytest.raises(ValueError, match=r"it is the name of a Service .* must be a name of Kubernetes"):
        RouterArgs(service_discovery_service=name)._validate_router_args()
    with pytest.raises(ValueError, match=r"it is the name of an InferencePool .* must be a name of Kubern"):
        RouterArgs(inference_pool=name)._validate_router_args()


def test_a_bad_word_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "and 'tier=a=b' is none of these" in errors_of("--selector app=vllm tier=a=b", capsys)
    assert "and '99999' is not one" in errors_of("--service-discovery-port 80 99999", capsys)


@pytest.mark.parametrize("resync", [0.5, 3601, -1])
def test_the_time_between_lists_has_limits(resync: float) -> None:
    with pytest.raises(
        ValueError, match=r"discovery_resync_secs is .* must be a number of seconds between 1 and"
    ):
        RouterArgs(discovery_resync_secs=resync)._validate_router_args()


@pytest.mark.parametrize(
    "settings",
    [
        {
            "selector": ["app=vllm", "vllm.ai/x=", "y!=z", "!old", SET],
            "service_discovery_namespace": ["a", "0"],
        },
        {"selector": {"app": "vllm"}, "service_discovery_port": [1, 65535, "a-1", "0a"]},
        {"service_discovery_service": "a-b", "service_discovery_namespace": "a-b"},
        {"inference_pool": "a-b", "service_discovery_namespace": "a-b"},
    ],
)
def test_what_fits_here_fits_the_source(settings: dict[str, Any]) -> None:
    args = RouterArgs(service_discovery=True, **settings)
    args._validate_router_args()
    options = args.server_options()
    KubernetesOptions(
        options["selector"],
        options["service_discovery_port"],
        options["service_discovery_namespace"] or (),
        options["service_discovery_service"] or "",
        pool=options["inference_pool"] or "",
    )
