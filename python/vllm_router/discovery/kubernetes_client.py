"""ApiServer: requests to the Kubernetes API server, by the official client.

Authentication, kubeconfig, TLS and proxies are the client's. Responses are read here, since its own watch
hides when a stream ended, and why.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from vllm_router._secrets import without_userinfo
from vllm_router.discovery.kubernetes_objects import trimmed_json
from vllm_router.discovery.kubernetes_options import KubernetesOptions

MISSING = "Kubernetes discovery needs the package kubernetes: pip install 'vllm-router[kubernetes]'"
_CONNECT_SECS = 5.0
_LONGEST_MESSAGE = 300
_POOLS = ("inference.networking.k8s.io", "v1")  # group and version
_MOST_READS = 64  # of 64 KiB, of an object that nothing here reads


class HttpError(Exception):
    """The API server returned an error, as the status of a response or in a stream."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status}: {message}" if message else str(status))
        self.status = status
        self.retry_after = retry_after


class SilentError(Exception):
    """Nothing came within the read timeout."""


class CutError(Exception):
    """There is no connection, or it ended before the response did."""


class ConfigError(Exception):
    """There is no usable configuration: a kubeconfig, or a service account."""


def said_of(error: BaseException) -> str:
    """An exception in one line that is not too long."""
    text = " ".join(without_userinfo(str(error)).split())
    return text[:_LONGEST_MESSAGE] or type(error).__name__


class Stream:
    """The body of a response, read as it comes."""

    def __init__(self, response: Any, closed: Callable[[Stream], None]) -> None:
        self._response = response
        self._closed = closed

    def read(self) -> bytes:
        """What has come; waits for it. Empty at the end.

        Raises:
            SilentError: nothing came within the read timeout.
            CutError: the connection ended before the response did.
        """
        errors = import_module("urllib3.exceptions")
        try:
            return bytes(self._response.read1(1 << 16))
        except (errors.ReadTimeoutError, TimeoutError) as error:
            raise SilentError(said_of(error)) from None
        # ValueError: shutdown() has taken the TLS layer away.
        except (errors.HTTPError, OSError, ValueError) as error:
            raise CutError(said_of(error)) from None

    def shutdown(self) -> None:
        """End a read() that waits in another thread."""
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # it has ended by itself
            self._response.shutdown()

    def close(self) -> None:
        """Close the connection, whatever of the response is still to come."""
        self._closed(self)
        self._response.close()
        self._response.release_conn()


class ApiServer:
    """The API server that the options name. One object serves several threads.

    Raises:
        ImportError: the package kubernetes is not there.
    """

    def __init__(self, options: KubernetesOptions) -> None:
        try:
            self._client = import_module("kubernetes.client")
            self._config = import_module("kubernetes.config")
            self._errors = import_module("urllib3.exceptions")
        except ImportError:
            raise ImportError(MISSING) from None
        self._options = options
        self._making = threading.Lock()  # may be held for long: kubeconfigs name programs to run
        self._made: Any = None
        self._lock = threading.Lock()
        self._open: set[Stream] = set()
        self._down = False

    def get(self, namespace: str, read_secs: float, **query: Any) -> Stream:
        """List or watch, in one namespace or, if it is empty, in all of them.

        Raises:
            HttpError: the API server returned an error.
            CutError, SilentError: it cannot be reached, or did not respond.
            ConfigError: it is not known where it is, or how to be let in.
        """
        place = (namespace,) if namespace else ()
        query["label_selector"] = self._options.label_selector or None
        query["field_selector"] = self._options.field_selector or None
        given = {key: value for key, value in query.items() if value is not None}
        return self._request(lambda: self._method(bool(namespace)), read_secs, *place, **given)

    def annotate_pod(self, namespace: str, name: str, uid: str, key: str, value: str, secs: float) -> None:
        """Set an annotation of a pod; see `get()` for what it raises. 422: that pod has another uid.

        Raises:
            HttpError: the API server returned an error.
            CutError, SilentError: it cannot be reached, or did not respond within `secs` seconds.
            ConfigError: it is not known where it is, or how to be let in.
        """
        body = {"metadata": {"uid": uid, "annotations": {key: value}}}
        kind = {"_content_type": "application/merge-patch+json"}
        stream = self._request(
            lambda: self._core_api().patch_namespaced_pod, secs, name, namespace, body, **kind
        )
        with contextlib.closing(stream):
            for _ in range(_MOST_READS):  # the pod, which is of no use; then the connection serves again
                if not stream.read():
                    break

    def _request(self, find: Callable[[], Any], read_secs: float, *place: Any, **given: Any) -> Stream:
        try:
            response = find()(
                *place, **given, _preload_content=False, _request_timeout=(_CONNECT_SECS, read_secs)
            )
        except self._client.exceptions.ApiException as error:
            if not error.status:  # the client says so of TLS
                raise CutError(said_of(error)) from None
            raise HttpError(error.status, _message_of(error), _retry_after(error)) from None
        except self._config.ConfigException as error:  # the client reads the token anew once a minute
            raise ConfigError(said_of(error)) from None
        except (self._errors.ReadTimeoutError, TimeoutError) as error:
            raise SilentError(said_of(error)) from None
        except (self._errors.HTTPError, OSError) as error:
            raise CutError(said_of(error)) from None

        stream = Stream(response, self._forget)
        with self._lock:
            self._open.add(stream)
        if self._down:
            stream.close()
            raise CutError("closed")
        return stream

    def shutdown(self) -> None:
        """End each response that is read in another thread, and those that are still to come."""
        with self._lock:
            self._down = True
            for stream in self._open:
                stream.shutdown()

    def _forget(self, stream: Stream) -> None:
        with self._lock:
            self._open.discard(stream)

    def renew(self) -> None:
        """Read the credentials again before the next request: the token, or what the kubeconfig names."""
        with self._making:
            self._made = None

    def _method(self, namespaced: bool) -> Any:
        if self._options.resource == "pods":
            core = self._core_api()
            return core.list_namespaced_pod if namespaced else core.list_pod_for_all_namespaces
        if self._options.resource == "inferencepools":
            custom = self._client.CustomObjectsApi(self._api_client())
            return functools.partial(custom.list_namespaced_custom_object, *_POOLS, plural="inferencepools")
        discovery = self._client.DiscoveryV1Api(self._api_client())
        if namespaced:
            return discovery.list_namespaced_endpoint_slice
        return discovery.list_endpoint_slice_for_all_namespaces

    def _core_api(self) -> Any:
        return self._client.CoreV1Api(self._api_client())

    def _api_client(self) -> Any:
        with self._making:
            if self._made is None:
                self._made = self._client.ApiClient(self._configuration())
            return self._made

    def _configuration(self) -> Any:
        made = self._client.Configuration()
        made.retries = False  # urllib3 would wait for Retry-After by itself
        made.keep_alive = True
        path, context = self._options.kubeconfig, self._options.context
        what = "the service account of the pod"
        try:
            if path is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
                self._config.load_incluster_config(made)
            else:
                file = None if path is None else os.fspath(path)
                what = "the default kubeconfig" if file is None else f"kubeconfig {file}"
                self._config.load_kube_config(file, context, made)
        except Exception as error:  # plugins and parsers raise anything
            raise ConfigError(f"{what} cannot be used: {said_of(error)}") from None
        return made


def _message_of(error: Any) -> str:
    """The message of the Status that comes with an error."""
    try:
        said = trimmed_json(error.body or "")["message"]
    except (ValueError, KeyError, TypeError):
        said = error.reason
    return " ".join(str(said or "").split())[:_LONGEST_MESSAGE]


def _retry_after(error: Any) -> float | None:
    text = str((error.headers or {}).get("Retry-After", ""))
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else None
