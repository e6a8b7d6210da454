"""The chart through Helm, and all manifests through kubernetes-validate, which has the schemas of Kubernetes.

After a change of the chart, its renders are written again, and looked at:

    python -m tests.deploy.test_chart_tools
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.chart_schema import LARGEST_WHOLE, READ
from tests.deploy.manifests import CHART, COPIES, PLAIN, RENDERS, ROOT, documents
from tests.unit.python.settings.values import BY_SPELLING, OTHER_VALUES
from vllm_router.settings.kinds import Number
from vllm_router.settings.names import FLAGS, SPELLINGS

pytestmark = pytest.mark.release

VALUES = sorted((Path(__file__).parent / "chart_values").glob("*.yaml"))
KUBERNETES = "1.37.0"
# Kinds of the Prometheus operator and of the inference extension, whose schemas Kubernetes does not have.
CUSTOM = {"InferencePool", "PrometheusRule", "ServiceMonitor"}


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = os.environ.get("HELM") or shutil.which("helm") or ROOT / "build" / "tools" / "helm"
    if not Path(program).is_file():
        pytest.fail(f"there is no helm ({program}); run scripts/install_helm.sh, or set HELM")
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )


def render(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return helm("template", "router", CHART, "--kube-version", KUBERNETES, *arguments)


def rendered(values: Path) -> str:
    """What Helm makes of a file of values; in place of each copied file its name."""
    done = render("--values", values)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    for name, indent in {"alerts.yml": 2, "recording.yml": 2, "vllm-router.json": 4}.items():
        copy = textwrap.indent((CHART / "files" / name).read_text().strip(), " " * indent, lambda _: True)
        text = text.replace(copy, f"{' ' * indent}in_the_chart: files/{name}")
    return text


def validated(path: Path) -> tuple[list[str], set[str]]:
    """The lines about objects that passed, and the kinds without a schema."""
    command = [Path(sys.executable).with_name("kubernetes-validate"), "--strict", "-k", KUBERNETES, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (done.stdout + done.stderr).splitlines()
    passed = [line for line in lines if line.startswith("INFO") and " passed for resource " in line]
    unknown = {line.split(" for kind ")[1].split()[0] for line in lines if "Couldn't find schema" in line}
    assert len(passed) + sum("Couldn't find schema" in line for line in lines) == len(lines), lines
    return passed, unknown


def test_the_chart_passes_lint() -> None:
    for values in VALUES:
        done = helm("lint", "--strict", "--kube-version", KUBERNETES, CHART, "--values", values)
        assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_a_render_for_each_file_of_values() -> None:
    assert len(VALUES) == 9
    assert [path.name for path in VALUES] == sorted(path.name for path in RENDERS.glob("*.yaml"))


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_a_render_is_as_it_was(values: Path) -> None:
    golden = (RENDERS / values.name).read_text()
    assert rendered(values) == golden, "if so meant, run: python -m tests.deploy.test_chart_tools"


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_a_render_is_valid(values: Path, tmp_path: Path) -> None:
    path = tmp_path / values.name
    path.write_text(render("--values", values).stdout)
    passed, unknown = validated(path)
    kinds = [document["kind"] for document in documents(path)]
    assert unknown == CUSTOM & set(kinds)
    assert len(passed) == sum(kind not in CUSTOM for kind in kinds) >= 4


@pytest.mark.parametrize("path", sorted(PLAIN.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_plain_manifest_is_valid(path: Path) -> None:
    passed, unknown = validated(path)
    kinds = [document["kind"] for document in documents(path)]
    assert unknown == CUSTOM & set(kinds)
    assert len(passed) == sum(kind not in CUSTOM for kind in kinds)


def test_a_manifest_with_a_mistake_is_not_valid(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_text((PLAIN / "router.yaml").read_text().replace("readOnlyRootFilesystem", "readOnlyRoot"))
    with pytest.raises(AssertionError, match="readOnlyRoot"):
        validated(path)


def test_rules_and_dashboard_arrive_as_they_are() -> None:
    done = render("--values", VALUES[0].with_name("everything.yaml"))
    objects = {
        (document["kind"], document["metadata"]["name"]): document
        for document in yaml.safe_load_all(done.stdout)
    }
    for name in ("alerts", "recording"):
        rules = objects["PrometheusRule", f"llm-{name}"]["spec"]
        assert rules["groups"]
        assert rules == yaml.safe_load(COPIES[f"{name}.yml"].read_text())
    dashboard = objects["ConfigMap", "llm-dashboard"]["data"]["vllm-router.json"]
    assert json.loads(dashboard) == json.loads(COPIES["vllm-router.json"].read_text())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"router": {"polcy": "x"}}, "at '/router': additional properties 'polcy' not allowed"),
        ({"router": {"port": "8080"}}, "at '/router/port': got string, want integer"),
        ({"router": {"cache_threshold": 2}}, "at '/router/cache_threshold': maximum: got 2, want 1"),
        ({"router": {"policy": "rond_robin"}}, "at '/router/policy': value must be one of 'random', "),
        ({"router": {"kv_events": True}}, "at '/router/kv_events': value must be one of 'auto', 'on', 'off'"),
        ({"router": {"enable_igw": True}}, "at '/router/enable_igw': value must be false"),
        ({"router": {"service_discovery": True}}, "router.service_discovery is set, "),
        ({"discovery": {"enabled": True}}, "neither discovery.selector nor discovery.service says"),
        (
            {"discovery": {"enabled": True, "selector": {"app": "vllm"}, "service": "workers"}},
            "discovery.selector and discovery.service are both set",
        ),
        (
            {"discovery": {"enabled": True, "selector": {"app": "vllm"}, "decodeSelector": {"role": "d"}}},
            "discovery.prefillSelector or discovery.decodeSelector is set beside discovery.selector or",
        ),
        (
            {"discovery": {"enabled": True, "decodeSelector": {"role": "d"}}},
            "is set and router.vllm_pd_disaggregation is not, so pods have no stages",
        ),
        (
            {"discovery": {"enabled": True, "selector": {"app": "vllm"}, "inferencePool": "llama"}},
            "discovery.inferencePool is set beside another of discovery's selectors",
        ),
        (
            {"discovery": {"enabled": True, "inferencePool": "llama", "namespaces": ["a", "b"]}},
            "discovery.namespaces has several names, and an InferencePool and its pods are in one",
        ),
        ({"router": {"inference_pool": "llama"}}, "set discovery.inferencePool instead"),
        ({"router": {"epp_port": 9002}}, "set epp.enabled and epp.port instead"),
        ({"epp": {"enabled": True, "tls": True}}, "epp.tls is true and there is no certificate"),
        ({"epp": {"inferencePool": {"enabled": True}}}, "name a port that nothing serves; set epp.enabled"),
        (
            {"epp": {"enabled": True, "inferencePool": {"enabled": True}}},
            "name the labels of the workers' pods, such as {app: vllm}, and their ports",
        ),
        (
            {"epp": {"inferencePool": {"failureMode": "Open"}}},
            "at '/epp/inferencePool/failureMode': value must be one of 'FailClose', 'FailOpen'",
        ),
        ({"router": {"prometheus-port": 9100}}, "additional properties 'prometheus-port' not allowed"),
        ({"router": {"host": None}}, "at '/router': missing property 'host'"),
        ({"replcas": 3}, "at '': additional properties 'replcas' not allowed"),
        ({"secrets": {"tls": "router-tls"}}, "at '/secrets/tls': got string, want object"),
        ({"router": {"api_key": "sk-1"}}, "name it in secrets.workerKey.name"),
        ({"router": {"redis_url": "redis://:pw@cache"}}, "router.redis_url has a password"),
        (
            {"router": {"peer_sync": "redis://:pw@cache"}},
            "router.peer_sync has a password and would be in a ConfigMap, which is no secret; put the "
            "password into a Secret and name it in secrets.peerSyncPassword.name",
        ),
        (
            {"router": {"response_cache": {"redis": {"url": "redis://:pw@cache"}}}},
            "router.response_cache.redis.url has a password",
        ),
        ({"router": {"redis_url": "redis://:p/w@d@cache:6379"}}, "router.redis_url has a password"),
        ({"router": {"redis_url": "redis://cache/?password=pw"}}, "router.redis_url has a password"),
        (
            {"adminService": {"enabled": True}, "networkPolicy": {"enabled": True}},
            "neither networkPolicy.adminFrom nor secrets.adminKeys.name says who may change the fleet",
        ),
        ({"router": {"admin_port": None}, "adminService": {"enabled": True}}, "set router.admin_port"),
        ({"secrets": {"clientCa": {"name": "ca"}}}, "set secrets.tls.name, too"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_mistake_in_the_values_is_named(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    done = render("--values", path)
    assert done.returncode != 0
    assert message in done.stderr
    assert "sk-1" not in done.stderr
    assert ":pw@" not in done.stderr


def accepts(name: str, value: Any) -> bool:
    """Whether the schema takes a setting of `router:`."""
    import jsonschema  # which kubernetes-validate brings

    schema = json.loads((CHART / "values.schema.json").read_text())
    reference = {"$ref": f"#/properties/router/properties/{name}", "properties": schema["properties"]}
    assert name in schema["properties"]["router"]["properties"], name
    return bool(jsonschema.Draft7Validator(reference).is_valid(value))


def test_the_schema_takes_each_setting_by_all_its_names_as_the_router_does() -> None:
    others = {BY_SPELLING[spelling].field: value for spelling, (_, value) in OTHER_VALUES.items()}
    others |= {"seed": LARGEST_WHOLE, "prometheus_port": 9100}
    for name, (flag, alias) in SPELLINGS.items():
        if flag.field in READ and name != flag.field:
            continue  # by one name alone, which the templates read
        for spelled in {name} if flag.field in READ else {name, name.replace("_", "-")}:
            if alias is None or alias.kind is None:
                assert accepts(spelled, flag.default) or flag.field in READ, spelled
            if flag.field in others and not (alias and alias.kind):
                assert accepts(spelled, others[flag.field]) != bool(flag.not_built), spelled


def test_the_schema_rejects_what_is_beyond_a_settings_limits() -> None:
    numbers = {name: flag.kind for name, flag in FLAGS.items() if isinstance(flag.kind, Number)}
    assert len(numbers) > 80
    for name, kind in numbers.items():
        assert not accepts(name, kind.low - 1 if kind.low - 1 else -1), name
        assert not accepts(name, "1"), name
        assert kind.high is None or not accepts(name, kind.high + 1), name


if __name__ == "__main__":
    for file in VALUES:
        (RENDERS / file.name).write_text(rendered(file))
