"""A Kubernetes API server that lists and watches pods, EndpointSlices and InferencePools, and does it badly
on demand.

with FakeKubernetes() as cluster:
    cluster.put(pod("vllm-0", "10.0.0.1"))
    source = KubernetesSource(KubernetesOptions("app=vllm", kubeconfig=cluster.kubeconfig(tmp_path)))
    cluster.fault = "silent"
"""

from __future__ import annotations

import copy
import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.fakes.authority import Authority
from tests.fakes.wire import PATIENCE
from tests.models import label_selector

Object = dict[str, Any]

# Of watches. silent: nothing is sent, not even an end; cut: the connection ends in the middle of an event;
# gone_event: an ERROR event with code 410; gone_status: 410; empty: 200 and nothing; error_event: code 500;
# garbage: what is no JSON.
FAULTS = ("", "silent", "cut", "gone_event", "gone_status", "empty", "error_event", "garbage")


def pod(
    name: str,
    ip: str | None,
    *,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    ready: bool = True,
    phase: str = "Running",
    uid: str | None = None,
    restarts: int = 0,
    ports: dict[str, int] | None = None,
    **metadata: Any,
) -> Object:
    """A pod with one container, `engine`."""
    status: Object = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "containerStatuses": [{"name": "engine", "restartCount": restarts, "ready": ready}],
    }
    if ip is not None:
        status |= {"podIP": ip, "podIPs": [{"ip": ip}]}
    declared = [{"name": key, "containerPort": port} for key, port in (ports or {"http": 8000}).items()]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-of-{name}",
            "labels": {"app": "vllm"} if labels is None else labels,
            "annotations": annotations or {},
            **metadata,
        },
        "spec": {
            "containers": [{"name": "engine", "image": "vllm", "ports": declared}],
            "terminationGracePeriodSeconds": 60,
        },
        "status": status,
    }


def endpoint(address: str, pod_name: str | None = None, **conditions: bool) -> Object:
    """An endpoint of a slice, of a pod if it has a name."""
    made: Object = {"addresses": [address], "conditions": conditions}
    if pod_name is not None:
        made["targetRef"] = {
            "kind": "Pod",
            "name": pod_name,
            "namespace": "default",
            "uid": f"uid-of-{pod_name}",
        }
    return made


def endpoint_slice(
    name: str,
    *endpoints: Object,
    service: str = "vllm",
    namespace: str = "default",
    ports: dict[str, int | None] | None = None,
    address_type: str = "IPv4",
    annotations: dict[str, str] | None = None,
) -> Object:
    """An EndpointSlice of a Service."""
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-of-{name}",
            "labels": {"kubernetes.io/service-name": service},
            "annotations": annotations or {},
        },
        "addressType": address_type,
        "endpoints": list(endpoints),
        "ports": [
            {"name": key, "port": port} for key, port in ({"http": 8000} if ports is None else ports).items()
        ],
    }


def inference_pool(
    name: str = "vllm",
    *,
    labels: dict[str, str] | None = None,
    ports: tuple[int, ...] = (8000,),
    namespace: str = "default",
    **spec: Any,
) -> Object:
    """An InferencePool of the Gateway API Inference Extension; `spec`: what its spec has instead."""
    return {
        "kind": "InferencePool",
        "apiVersion": "inference.networking.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"},
        "spec": {
            "selector": {"matchLabels": {"app": "vllm"} if labels is None else labels},
            "targetPorts": [{"number": port} for port in ports],
            "endpointPickerRef": {"name": "vllm-router", "port": {"number": 9002}},
            **spec,
        },
    }


class Request(NamedTuple):
    verb: str  # list, watch, patch
    resource: str
    namespace: str
    query: dict[str, str]


class _Change(NamedTuple):
    version: int
    kind: str
    new: Object
    old: Object | None


class _Refusal(NamedTuple):
    status: int
    headers: dict[str, str]
    message: str


class _Server(ThreadingHTTPServer):
    tls: ssl.SSLContext | None = None

    def get_request(self) -> Any:
        accepted, peer = super().get_request()
        return (accepted if self.tls is None else self.tls.wrap_socket(accepted, server_side=True)), peer


class FakeKubernetes:
    """The API server. What its attributes say holds for requests and watches from then on."""

    def __init__(
        self, watch_secs: float = PATIENCE, token: str = "token-1", authority: Authority | None = None
    ) -> None:
        self.changed = threading.Condition()
        self.watch_secs = watch_secs  # at most
        self.requests: list[Request] = []
        self.forbidden: set[tuple[str, str]] = set()  # (verb, namespace)
        self._token = token
        self._fault = ""
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._version = 100
        self._oldest = 0  # watches from before it are gone
        self._log: list[_Change] = []
        self._cache: tuple[int, dict[tuple[str, str, str], Object]] | None = None
        self._refusals: list[_Refusal] = []
        self._watches = 0
        self._cuts = 0
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._authority = authority
        if authority is not None:
            self._server.tls = authority.server("127.0.0.1")
        self._server.fake = self  # type: ignore[attr-defined]
        self._closed = False
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def __enter__(self) -> FakeKubernetes:
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self._closed = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http{'s' if self._authority else ''}://127.0.0.1:{self._server.server_port}"

    def kubeconfig(self, directory: Path) -> str:
        """Writes one with the token, and says where."""
        path = directory / "kubeconfig.json"
        trusted = {"certificate-authority": self._authority.path} if self._authority else {}
        path.write_text(
            json.dumps(
                {
                    "kind": "Config",
                    "apiVersion": "v1",
                    "current-context": "fake",
                    "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "router"}}],
                    "clusters": [{"name": "fake", "cluster": {"server": self.url, **trusted}}],
                    "users": [{"name": "router", "user": {"token": self._token}}],
                }
            )
        )
        return str(path)

    # ---- what there is

    def put(self, thing: Object) -> None:
        """An object is added, or modified."""
        self._change(thing, deleted=False)

    def delete(self, thing: Object) -> None:
        self._change(thing, deleted=True)

    def lose(self, thing: Object) -> None:
        """An object is deleted, and no watch hears of it."""
        with self.changed:
            self._version += 1
            del self._objects[_key(thing)]

    def repeat(self, kind: str, thing: Object, version: int) -> None:
        """An event of something that has been before: it is sent, and nothing changes."""
        with self.changed:
            thing = copy.deepcopy(thing)
            thing["metadata"]["resourceVersion"] = str(version)
            self._log.append(_Change(self._version, kind, thing, None))
            self.changed.notify_all()

    def bookmark(self) -> None:
        """To all watches."""
        with self.changed:
            self._version += 1
            self._log.append(_Change(self._version, "BOOKMARK", {}, None))
            self.changed.notify_all()

    def compact(self) -> None:
        """Watches from versions before now are gone."""
        with self.changed:
            self._version += 1
            self._oldest = self._version

    def lag(self) -> None:
        """Lists from the cache stay as they are now."""
        with self.changed:
            self._cache = (self._version, dict(self._objects))

    def annotations(self, thing: Object) -> dict[str, str]:
        """Of a pod, as they are now."""
        with self.changed:
            return dict(self._objects[_key(thing)]["metadata"]["annotations"])

    @property
    def version(self) -> int:
        with self.changed:
            return self._version

    # ---- what goes wrong

    @property
    def fault(self) -> str:
        return self._fault

    @fault.setter
    def fault(self, fault: str) -> None:
        assert fault in FAULTS
        with self.changed:
            self._fault = fault
            self.changed.notify_all()

    def cut(self) -> None:
        """The watches that are open now."""
        with self.changed:
            self._cuts += 1
            self.changed.notify_all()

    def refuse(self, status: int, message: str = "", times: int = 1, **headers: str) -> None:
        """The next requests."""
        with self.changed:
            self._refusals += [_Refusal(status, headers, message)] * times

    def rotate(self, token: str) -> None:
        """Other tokens are wrong from now on; open watches end."""
        with self.changed:
            self._token = token
            self._cuts += 1
            self.changed.notify_all()

    # ---- what has been asked for

    def count(self, verb: str, namespace: str | None = None) -> int:
        with self.changed:
            return sum(one.verb == verb and namespace in (None, one.namespace) for one in self.requests)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """For something about the requests."""
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE), f"{what}: {self.requests}"

    def wait_requests(self, verb: str, count: int = 1, namespace: str | None = None) -> None:
        self.wait(lambda: self.count(verb, namespace) >= count, f"no {count} requests to {verb}")

    def wait_watching(self, count: int = 1) -> None:
        """So many watches are open."""
        self.wait(lambda: self._watches >= count, f"no {count} watches")

    # ---- inside

    def _change(self, thing: Object, deleted: bool) -> None:
        with self.changed:
            self._version += 1
            thing = copy.deepcopy(thing)
            thing["metadata"]["resourceVersion"] = str(self._version)
            old = self._objects.pop(_key(thing), None)
            if not deleted:
                self._objects[_key(thing)] = thing
            kind = "DELETED" if deleted else "ADDED" if old is None else "MODIFIED"
            self._log.append(_Change(self._version, kind, thing, old))
            self.changed.notify_all()


_RESOURCES = {"Pod": "pods", "EndpointSlice": "endpointslices", "InferencePool": "inferencepools"}


def _key(thing: Object) -> tuple[str, str, str]:
    return _RESOURCES[thing["kind"]], thing["metadata"]["namespace"], thing["metadata"]["name"]


def _selected(thing: Object | None, request: Request) -> bool:
    if thing is None:
        return False
    resource, namespace, name = _key(thing)
    return (
        resource == request.resource
        and request.namespace in ("", namespace)
        and request.query.get("fieldSelector") in (None, f"metadata.name={name}")
        and label_selector.matches(
            request.query.get("labelSelector", ""), thing["metadata"].get("labels", {})
        )
    )


def _event_for(change: _Change, request: Request) -> Object | None:
    """What a watch sees of a change: an object that leaves its labels is deleted for it."""
    if change.kind == "BOOKMARK":
        thing = {"kind": "Pod", "metadata": {"resourceVersion": str(change.version)}}
        return {"type": "BOOKMARK", "object": thing} if "allowWatchBookmarks" in request.query else None
    new, old = _selected(change.new, request), _selected(change.old, request)
    if not new and not old:
        return None
    kind = change.kind
    if kind == "MODIFIED":
        kind = "MODIFIED" if new and old else "ADDED" if new else "DELETED"
    return {"type": kind, "object": change.new}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def fake(self) -> FakeKubernetes:
        return self.server.fake  # type: ignore[attr-defined,no-any-return]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        fake = self.fake
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        words = url.path.split("/")
        namespace = words[words.index("namespaces") + 1] if "namespaces" in words else ""
        verb = "watch" if query.get("watch") in ("true", "True", "1") else "list"
        request = Request(verb, words[-1], namespace, query)
        with fake.changed:
            fake.requests.append(request)
            fake.changed.notify_all()
            refusal = self._refusal(request)
            cuts = fake._cuts
        if refusal is not None:
            self._status(refusal)
        elif verb == "list":
            self._list(request)
        else:
            try:
                self._watch(request, cuts)
            except OSError:
                self.close_connection = True

    def do_PATCH(self) -> None:
        """A merge patch of the annotations of a pod."""
        fake = self.fake
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = urlsplit(self.path).path.split("/")
        namespace = words[words.index("namespaces") + 1]
        request = Request("patch", words[-2], namespace, {"name": words[-1]})
        with fake.changed:
            fake.requests.append(request)
            fake.changed.notify_all()
            refusal = self._refusal(request)
            thing = copy.deepcopy(fake._objects.get((words[-2], namespace, words[-1])))
        if refusal is None and self.headers["Content-Type"] != "application/merge-patch+json":
            refusal = _Refusal(415, {}, f"unsupported media type {self.headers['Content-Type']}")
        if refusal is None and thing is None:
            refusal = _Refusal(404, {}, f'pods "{words[-1]}" not found')
        if refusal is None and thing is not None and body["metadata"]["uid"] != thing["metadata"]["uid"]:
            refusal = _Refusal(422, {}, 'Pod: metadata.uid: Invalid value: "1": field is immutable')
        if refusal is not None or thing is None:
            self._status(refusal or _Refusal(500, {}, ""))
            return
        thing["metadata"]["annotations"] |= body["metadata"]["annotations"]
        fake.put(thing)
        self._json(200, thing)

    def _refusal(self, request: Request) -> _Refusal | None:
        fake = self.fake
        if self.headers.get("Authorization", "").lower() != f"bearer {fake._token}":
            return _Refusal(401, {}, "Unauthorized")
        if fake._refusals:
            return fake._refusals.pop(0)
        if (request.verb, request.namespace) in fake.forbidden:
            place = f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
            return _Refusal(
                403,
                {},
                f'{request.resource} is forbidden: User "system:serviceaccount:default:router" cannot '
                f'{request.verb} resource "{request.resource}" in API group "" {place}',
            )
        if request.verb == "watch":
            old = int(request.query.get("resourceVersion", "0")) < fake._oldest
            if fake._fault == "gone_status" or (old and fake._fault in ("", "silent", "cut")):
                return _Refusal(410, {}, "too old resource version")
        return None

    def _status(self, refusal: _Refusal) -> None:
        status = {"kind": "Status", "code": refusal.status, "message": refusal.message, "status": "Failure"}
        self._json(refusal.status, status, refusal.headers)

    def _json(self, status: int, thing: Object, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(thing).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _list(self, request: Request) -> None:
        fake = self.fake
        with fake.changed:
            cached = request.query.get("resourceVersion") == "0" and fake._cache is not None
            version, objects = fake._cache if cached and fake._cache else (fake._version, fake._objects)
            items = [thing for _, thing in sorted(objects.items()) if _selected(thing, request)]
        begin = int(request.query.get("continue", "0"))
        end = begin + int(request.query.get("limit", len(items) or 1))
        metadata = {"resourceVersion": str(version)}
        if end < len(items):
            metadata["continue"] = str(end)
        kind = next(kind for kind, resource in _RESOURCES.items() if resource == request.resource)
        self._json(200, {"kind": f"{kind}List", "metadata": metadata, "items": items[begin:end]})

    def _watch(self, request: Request, cuts: int) -> None:
        fake = self.fake
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        after = int(request.query.get("resourceVersion", "0"))
        seconds = min(fake.watch_secs, float(request.query.get("timeoutSeconds", "3600")))
        deadline = time.monotonic() + seconds
        with fake.changed:
            fake._watches += 1
            fake.changed.notify_all()
            # Repeated events have the version of when they were sent, so positions count from here on.
            position = next((i for i, one in enumerate(fake._log) if one.version > after), len(fake._log))
        try:
            while True:
                with fake.changed:
                    fake.changed.wait_for(
                        lambda position=position: (
                            fake._closed
                            or fake._cuts > cuts
                            or fake._fault not in ("", "silent")
                            or (fake._fault != "silent" and len(fake._log) > position)
                        ),
                        None if fake._fault == "silent" else max(0.0, deadline - time.monotonic()),
                    )
                    fault = "cut" if fake._cuts > cuts else fake._fault
                    changes = fake._log[position:]
                    closed = fake._closed
                if closed or fault == "cut":
                    self._cut()
                    return
                if fault == "silent":
                    continue
                if fault == "gone_event":
                    self._event(_error(410, "Expired", "too old resource version"))
                elif fault == "error_event":
                    self._event(_error(500, "InternalError", "etcd is away"))
                elif fault == "garbage":
                    self._chunk(b'{"type": "ADDED", "object": {{{\n')
                elif fault == "":
                    for change in changes:
                        event = _event_for(change, request)
                        if event is not None:
                            self._event(event)
                    position += len(changes)
                    if time.monotonic() < deadline:
                        continue
                self.wfile.write(b"0\r\n\r\n")
                return
        finally:
            with fake.changed:
                fake._watches -= 1
                fake.changed.notify_all()

    def _event(self, event: Object) -> None:
        self._chunk(json.dumps(event).encode() + b"\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _cut(self) -> None:
        with_half = b'{"type": "DELETED", "object": {"kind": "Pod", "metadata": {"name": "vll'
        self.wfile.write(b"%x\r\n%s" % (len(with_half) + 100, with_half))
        self.wfile.flush()
        self.close_connection = True


def _error(code: int, reason: str, message: str) -> Object:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": reason, "message": message}}
