"""What would happen to these settings at the start: checks, warnings, files and ports."""

from __future__ import annotations

import importlib
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path

from vllm_router._http_get import tls_context
from vllm_router.doctor.finding import Finding
from vllm_router.errors import RouterError, UnusedOptionWarning
from vllm_router.launch_router import with_environment
from vllm_router.router_args import FLAGS, RouterArgs

SECTION = "configuration"


def findings(args: RouterArgs) -> Iterator[Finding]:
    """All of them."""
    try:
        args = with_environment(args)
        args._validate_router_args()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnusedOptionWarning)
            importlib.import_module("vllm_router.router").Router.from_args(args)
        args.server_options()
    except (TypeError, ValueError, RouterError, ImportError) as error:
        yield Finding(SECTION, "settings", "error", str(error), "correct it; the router would not start")
        return
    yield Finding(SECTION, "settings", "ok", f"accepted; policy {args.policy}")
    for sentence in args.warnings():
        yield Finding(SECTION, "settings", "warning", sentence)
    yield from _files(args)
    yield from _ports(args)


def _files(args: RouterArgs) -> Iterator[Finding]:
    for name, flag in FLAGS.items():
        path = getattr(args, name)
        if not name.endswith(("_file", "_path")) or not isinstance(path, str):
            continue
        try:
            if not Path(path).is_file():
                raise FileNotFoundError(2, "No such file")
            with Path(path).open("rb") as file:
                file.read(1)
        except OSError as error:
            remedy = "create it, or let the user of the router read it"
            yield Finding(SECTION, flag.spelling, "error", f"{path} cannot be read: {error.strerror}", remedy)
        else:
            yield Finding(SECTION, flag.spelling, "ok", f"{path} can be read")
    pairs = ((args.tls_cert_path, args.tls_key_path), (args.worker_cert_path, args.worker_key_path))
    for cert, key in pairs:
        if cert is None or not Path(cert).is_file() or key is None or not Path(key).is_file():
            continue
        try:
            tls_context(cert=cert, key=key)
        except OSError as error:
            found = f"{cert} and {key} cannot be used: {getattr(error, 'reason', None) or error.strerror}"
            remedy = "give a PEM certificate with its own key, without a password"
            yield Finding(SECTION, "certificate", "error", found, remedy)


def _ports(args: RouterArgs) -> Iterator[Finding]:
    wanted = [("--port", args.host, args.port)]
    if args.admin_port is not None:
        wanted.append(("--admin-port", args.admin_host, args.admin_port))
    if args.prometheus_port is not None and args.prometheus_host is not None:
        wanted.append(("--prometheus-port", args.prometheus_host, args.prometheus_port))
    for name, host, port in wanted:
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind) as listening:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if args.reuse_port and name == "--port":
                    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                listening.bind(address)
                # A socket that only binds does not see one that listens with the same option.
                listening.listen(1)
        except OSError as error:
            remedy = "stop what listens there, or choose another port or host"
            yield Finding(SECTION, name, "error", f"{place} cannot be bound: {error.strerror}", remedy)
        else:
            yield Finding(SECTION, name, "ok", f"{place} can be bound")
