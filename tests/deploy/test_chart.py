"""The chart and the plain manifests against the package: versions, settings, copies, probes. Without Helm."""

import re
import sys
from pathlib import Path

import pytest
import yaml

from scripts.chart_schema import SECTIONS
from scripts.chart_schema import main as print_schema
from tests.deploy.manifests import CHART, COPIES, PLAIN, RENDERS, ROOT, documents, pod, router_args, the
from vllm_router.router_args import RouterArgs

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings it
    import tomli as tomllib

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
ROUTERS = [*sorted(RENDERS.glob("*.yaml")), PLAIN / "router.yaml"]


def block_of_the_page(page: str, start: str) -> str:
    text = (ROOT / "docs" / "how-to" / page).read_text()
    return next(
        block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if block.startswith(start)
    )


def test_the_chart_and_the_images_have_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    for path in (RENDERS / "default.yaml", PLAIN / "router.yaml"):
        assert pod(path)["containers"][0]["image"] == f"vllm-router:{VERSION}"


def test_the_schema_is_what_the_flags_say(capsys: pytest.CaptureFixture[str]) -> None:
    print_schema()
    assert (CHART / "values.schema.json").read_text() == capsys.readouterr().out, (
        "run: python scripts/chart_schema.py > deploy/helm/vllm-router/values.schema.json"
    )


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_of_the_schema_is_one_of_the_routers_file(name: str) -> None:
    RouterArgs.from_yaml(f"{name}: {{}}")
    with pytest.raises(ValueError, match=name):
        RouterArgs.from_yaml(f"{name}: 3")


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_in_the_chart_is_equal(name: str) -> None:
    assert (CHART / "files" / name).read_bytes() == COPIES[name].read_bytes(), (
        f"run: cp {COPIES[name].relative_to(ROOT)} {(CHART / 'files' / name).relative_to(ROOT)}"
    )


def test_the_default_values_are_settings_of_the_router_that_lack_only_workers() -> None:
    args = RouterArgs.from_dict(yaml.safe_load((CHART / "values.yaml").read_text())["router"])
    args._validate_router_args()
    (warning,) = args.warnings()
    assert warning.startswith("no worker URLs are given")


@pytest.mark.parametrize("path", ROUTERS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_router_is_told_what_it_accepts(path: Path, tmp_path: Path) -> None:
    args = router_args(path, tmp_path)
    assert args.worker_urls or args.vllm_pd_disaggregation or args.inference_pool
    spec = pod(path)
    ports = {port["name"]: port["containerPort"] for port in spec["containers"][0]["ports"]}
    own = {"http": args.port, "metrics": args.prometheus_port, "admin": args.admin_port}
    of_picker = {"epp": args.epp_port, "epp-health": args.epp_health_port}
    assert ports == own | {name: port for name, port in of_picker.items() if port is not None}
    grace = args.shutdown_settle_secs + args.shutdown_grace_period_secs
    assert grace + 10 <= spec["terminationGracePeriodSeconds"] < grace + 20


def test_values_arrive_that_yaml_or_helm_could_change(tmp_path: Path) -> None:
    args = router_args(RENDERS / "everything.yaml", tmp_path)
    assert (args.kv_events, args.tls_min_version, args.host) == ("on", "1.3", "::")
    assert (args.seed, args.max_payload_size, args.retry_jitter_factor) == (2**53 - 1, 2**26, 0.05)
    assert (args.policy, args.virtual_nodes, args.hash_key_headers) == (
        "consistent_hash",
        200,
        ["X-Session-ID"],
    )


def test_routers_meet_in_the_redis_of_the_chart_whose_pod_is_no_router(tmp_path: Path) -> None:
    path = RENDERS / "peer_sync.yaml"
    found = {(document["kind"], document["metadata"]["name"]): document for document in documents(path)}
    name = "router-vllm-router"
    args = router_args(path, tmp_path)
    port = found["Service", f"{name}-redis"]["spec"]["ports"][0]["port"]
    assert args.peer_sync == f"redis://{name}-redis:{port}"
    assert args.peer_sync_password_file == "/etc/vllm-router/peer-sync-password/password"
    assert args.peer_sync_secret_file == "/etc/vllm-router/peer-sync-secret/secret"
    assert args.warnings() == []
    redis, router = (found["Deployment", each]["spec"] for each in (f"{name}-redis", name))
    labels = redis["template"]["metadata"]["labels"].items()
    assert labels >= found["Service", f"{name}-redis"]["spec"]["selector"].items()
    assert not labels >= router["selector"]["matchLabels"].items()
    assert (redis["replicas"], redis["strategy"]) == (1, {"type": "Recreate"})
    secure = redis["template"]["spec"]["containers"][0]["securityContext"]
    assert secure == router["template"]["spec"]["containers"][0]["securityContext"]
    policy = found["NetworkPolicy", f"{name}-redis"]["spec"]
    assert labels >= policy["podSelector"]["matchLabels"].items()
    (peer,) = policy["ingress"][0]["from"]
    assert peer == {"podSelector": router["selector"]}


def test_a_redis_that_the_values_name_comes_before_the_charts(tmp_path: Path) -> None:
    args = router_args(RENDERS / "everything.yaml", tmp_path)
    assert args.peer_sync == "rediss://router@peers:6379/0"


@pytest.mark.parametrize("path", [RENDERS / "default.yaml", PLAIN / "router.yaml"], ids=["chart", "plain"])
def test_probes_grace_and_resources_are_those_of_the_page(path: Path) -> None:
    page = yaml.safe_load(block_of_the_page("run_in_production.md", "spec:"))["spec"]
    told = page["containers"][0]
    spec = pod(path)
    container = spec["containers"][0]
    assert spec["terminationGracePeriodSeconds"] == page["terminationGracePeriodSeconds"]
    assert container["resources"] == told["resources"]
    for name in ("readinessProbe", "livenessProbe"):
        assert told[name]["httpGet"]["port"] == 30000
        told[name]["httpGet"]["port"] = "http"
        assert container[name] == told[name]


def test_plain_pods_are_confined_as_those_of_the_chart() -> None:
    ours, charts = pod(PLAIN / "router.yaml"), pod(RENDERS / "default.yaml")
    assert ours["securityContext"] == charts["securityContext"]
    assert ours["securityContext"]["runAsUser"] == 65532
    confined = [spec["containers"][0]["securityContext"] for spec in (ours, charts)]
    assert confined == 2 * [
        {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    ]


def test_a_pod_may_read_what_it_discovers_and_no_more() -> None:
    """Without discovery there is no token; with it, a Role in each namespace, or else a ClusterRole."""
    expected = {
        "default": (False, []),
        "network_policy_and_rbac": (True, [("Role", "models", "pods"), ("Role", "batch", "pods")]),
        "everything": (True, [("ClusterRole", None, "endpointslices")]),
        "prefill_decode": (True, [("Role", "models", "pods")]),
        "endpoint_picker": (True, [("Role", "default", "pods")]),
    }
    for name, (token, roles) in expected.items():
        path = RENDERS / f"{name}.yaml"
        assert pod(path)["automountServiceAccountToken"] == token
        environment = [one["name"] for one in pod(path)["containers"][0].get("env", [])]
        assert ("POD_IP" in environment) == token
        found = [one for one in documents(path) if one["kind"] in ("Role", "ClusterRole")]
        bindings = [one for one in documents(path) if one["kind"] in ("RoleBinding", "ClusterRoleBinding")]
        assert [
            (role["kind"], role["metadata"].get("namespace"), *role["rules"][0]["resources"])
            for role in found
        ] == roles
        for role, binding in zip(found, bindings, strict=True):
            reads = ["get", "list", "watch"]
            values = yaml.safe_load((RENDERS.parent / "chart_values" / f"{name}.yaml").read_text())
            writes = [["patch"]] if values["router"].get("pod_deletion_cost") else []
            pools = [rule for rule in role["rules"] if rule["resources"] == ["inferencepools"]]
            assert len(pools) == (name == "endpoint_picker")
            assert [rule["verbs"] for rule in role["rules"]] == [reads, *(len(pools) * [reads]), *writes]
            assert binding["metadata"].get("namespace") == role["metadata"].get("namespace")
            assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (
                role["kind"],
                role["metadata"]["name"],
            )
            (subject,) = binding["subjects"]
            assert subject["name"] == pod(path)["serviceAccountName"]


def test_the_router_of_a_chart_discovers_what_the_values_say(tmp_path: Path) -> None:
    args = router_args(RENDERS / "network_policy_and_rbac.yaml", tmp_path)
    assert args.service_discovery
    assert args.selector == {"app": "vllm", "example.com/tier": "1"}
    assert args.service_discovery_namespace == ["models", "batch"]
    assert args.pod_deletion_cost
    args = router_args(RENDERS / "everything.yaml", tmp_path)
    assert (args.service_discovery, args.service_discovery_service) == (True, "workers")
    args = router_args(RENDERS / "prefill_decode.yaml", tmp_path)
    assert (args.vllm_pd_disaggregation, args.service_discovery, args.selector) == (True, True, {})
    assert args.prefill_selector == {"app": "vllm", "role": "prefill"}
    assert args.decode_selector == {"app": "vllm", "role": "decode"}


def test_a_pool_names_the_service_of_the_picker_that_follows_it(tmp_path: Path) -> None:
    path = RENDERS / "endpoint_picker.yaml"
    found = {(document["kind"], document["metadata"]["name"]): document for document in documents(path)}
    args = router_args(path, tmp_path)
    pool = found["InferencePool", "llama"]
    assert pool["apiVersion"] == "inference.networking.k8s.io/v1"
    assert pool["spec"]["selector"] == {"matchLabels": {"app": "vllm", "example.com/tier": "1"}}
    assert pool["spec"]["targetPorts"] == [{"number": 8000}, {"number": 8001}]
    assert (args.inference_pool, args.service_discovery_namespace) == ("llama", "default")
    picker = pool["spec"]["endpointPickerRef"]
    service = found["Service", picker["name"]]["spec"]
    ports = {port["name"]: port["port"] for port in service["ports"]}
    assert picker["port"]["number"] == ports["epp"] == args.epp_port == 9002
    assert ports["epp-health"] == args.epp_health_port == 9003
    labels = found["Deployment", "router-vllm-router"]["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= service["selector"].items()
    assert (args.epp_tls, args.epp_only, args.epp_fallbacks) == (True, True, 2)
    assert (picker["failureMode"], args.warnings()) == ("FailClose", [])
    policy = found["NetworkPolicy", "router-vllm-router"]["spec"]["ingress"][-1]
    assert [port["port"] for port in policy["ports"]] == ["epp", "epp-health"]


def test_the_plain_pool_is_that_of_the_plain_workers_and_router() -> None:
    path = PLAIN / "inferencepool.yaml"
    pool, service, role = (the(kind, path) for kind in ("InferencePool", "Service", "Role"))
    settings = re.findall(r"^#   (\w+: .*)$", path.read_text(), re.MULTILINE)
    args = RouterArgs.from_yaml("\n".join(settings))
    args._validate_router_args()
    assert args.inference_pool == pool["metadata"]["name"]
    assert (
        the("StatefulSet", PLAIN / "workers.yaml")["spec"]["template"]["metadata"]["labels"]
        == (pool["spec"]["selector"]["matchLabels"])
    )
    assert pool["spec"]["endpointPickerRef"]["name"] == service["metadata"]["name"]
    assert pool["spec"]["endpointPickerRef"]["port"]["number"] == args.epp_port
    assert [port["port"] for port in service["spec"]["ports"]] == [args.epp_port, args.epp_health_port]
    assert service["spec"]["selector"] == the("Service", PLAIN / "router.yaml")["spec"]["selector"]
    assert role["rules"][0]["resources"] == ["inferencepools"]


def test_a_probe_fits_what_the_port_speaks() -> None:
    probes = {
        name: pod(RENDERS / f"{name}.yaml")["containers"][0]["readinessProbe"]
        for name in ("default", "tls_and_keys", "everything")
    }
    assert probes["default"]["httpGet"] == {"path": "/readiness", "port": "http"}
    assert probes["tls_and_keys"]["httpGet"] == {"path": "/readiness", "port": "http", "scheme": "HTTPS"}
    assert probes["everything"]["tcpSocket"] == {"port": "http"}  # which asks for client certificates


def test_the_plain_router_names_the_plain_workers_and_warns_of_nothing(tmp_path: Path) -> None:
    workers = the("StatefulSet", PLAIN / "workers.yaml")
    name, service = workers["metadata"]["name"], workers["spec"]["serviceName"]
    assert the("Service", PLAIN / "workers.yaml")["metadata"]["name"] == service
    args = router_args(PLAIN / "router.yaml", tmp_path)
    urls = [f"http://{name}-{number}.{service}:8000" for number in range(workers["spec"]["replicas"])]
    assert (args.worker_urls, args.warnings()) == (urls, [])


def test_the_plain_workers_publish_kv_events_as_the_page_says() -> None:
    arguments = the("StatefulSet", PLAIN / "workers.yaml")["spec"]["template"]["spec"]["containers"][0][
        "args"
    ]
    config = arguments[-1].removeprefix("--kv-events-config=")
    assert f"--kv-events-config '{config}'" in (ROOT / "docs" / "how-to" / "use_kv_events.md").read_text()


def test_the_plain_manifests_have_every_secret_that_they_name() -> None:
    there = {
        (secret["metadata"]["name"], key)
        for secret in documents(PLAIN / "keys.yaml")
        for key in secret["stringData"]
    }
    needed = {("router-keys", "clients"), ("router-keys", "admins")}
    text = "".join((PLAIN / name).read_text() for name in ("router.yaml", "workers.yaml"))
    needed |= set(re.findall(r"secretKeyRef: \{name: ([\w-]+), key: ([\w-]+)\}", text))
    assert there == needed
    assert set(re.findall(r"secretName: ([\w-]+)", text)) == {"router-keys"}
