"""What would happen to these settings at the start: checks, warnings, files and ports."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path

from vllm_router._http_get import tls_context
from vllm_router.doctor.finding import Finding
from vllm_router.errors import RouterError, UnusedOptionWarning
from vllm_router.launch_router import with_environment
from vllm_router.router_args import FLAGS, RouterArgs
from vllm_router.settings.response_cache import check_fleet_is_told

SECTION = "configuration"
MAX_KEY_FILE_BYTES = 1 << 20  # looked at for a key


def findings(args: RouterArgs) -> Iterator[Finding]:
    """All of them."""
    try:
        args = with_environment(args)
        args._validate_router_args()
        check_fleet_is_told(args)
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
            found = _read(name, Path(path))
        except OSError as error:
            found = f"{path} cannot be read: {error.strerror}"
            remedy = "create it, or let the user of the router read it"
            yield Finding(SECTION, flag.spelling, "error", found, remedy)
        except ValueError as error:
            yield Finding(
                SECTION, flag.spelling, "error", f"{path} {error}", "correct it; the router would not start"
            )
        else:
            yield Finding(SECTION, flag.spelling, "ok", found)
    for spelling, directory in _written(args):
        if _is_writable(directory):
            yield Finding(SECTION, spelling, "ok", f"{directory} can be written")
        else:
            remedy = "create it, or let the user of the router write there"
            yield Finding(SECTION, spelling, "error", f"{directory} cannot be written", remedy)
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


def _read(name: str, path: Path) -> str:
    """What is found. Raises OSError where it cannot be read, ValueError where the router cannot use it."""
    if name == "record_log_salt_file" and not path.exists():
        if _is_writable(path.parent):
            return f"{path} will be created"
        raise FileNotFoundError(2, f"it does not exist, and {path.parent} cannot be written")
    if not path.is_file():
        raise OSError(2, "it is not a file" if path.exists() else "No such file")
    with path.open("rb") as file:
        beginning = file.read(MAX_KEY_FILE_BYTES)
    if name in ("client_api_key_file", "admin_api_key_file") and not beginning.strip():
        raise ValueError("has no key, so every request would be rejected")
    if name.endswith("_ca_file"):
        try:
            tls_context(ca_file=str(path))
        except OSError:
            raise ValueError("has no certificate in PEM form") from None
    return f"{path} can be read"


def _written(args: RouterArgs) -> Iterator[tuple[str, Path]]:
    """Flags, and the directories that the router writes to for them."""
    if args.log_dir:
        # It is made if it is missing.
        wanted = Path(args.log_dir).absolute()
        yield "--log-dir", next(path for path in (wanted, *wanted.parents) if path.exists())
    if args.record_log:
        yield "--record-log", Path(args.record_log).absolute().parent


def _is_writable(directory: Path) -> bool:
    return directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)


def _ports(args: RouterArgs) -> Iterator[Finding]:
    wanted = [("--port", args.host, args.port)]
    if args.admin_port is not None:
        wanted.append(("--admin-port", args.admin_host, args.admin_port))
    if args.epp_port is not None:
        wanted.append(("--epp-port", args.epp_host, args.epp_port))
    if args.epp_health_port is not None:
        wanted.append(("--epp-health-port", args.epp_host, args.epp_health_port))
    if args.prometheus_port is not None and args.prometheus_host is not None:
        wanted.append(("--prometheus-port", args.prometheus_host, args.prometheus_port))
    with contextlib.ExitStack() as bound:  # until all are, so that no two are the same
        for name, given, port in wanted:
            host = given.removeprefix("[").removesuffix("]")
            place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            shared = args.reuse_port and name == "--port"
            try:
                _bind_all(host, port, shared, bound)
            except OSError as error:
                remedy = "stop what listens there, or choose another port or host"
                yield Finding(SECTION, name, "error", f"{place} cannot be bound: {error.strerror}", remedy)
            else:
                yield Finding(SECTION, name, "ok", f"{place} can be bound")


def _bind_all(host: str, port: int, shared: bool, bound: contextlib.ExitStack) -> None:
    """Binds each address of the host, as the router does. A name may have one that this machine has not."""
    absent: OSError | None = None
    count = 0
    addresses = {found[4]: found[0] for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    for address, family in addresses.items():
        try:
            listening = bound.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.bind(address)
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            absent = error
            continue
        # A socket that only binds does not see one that listens with the same option; one that
        # listens beside a router that shares its port takes connections from it.
        if not shared:
            listening.listen(1)
        count += 1
    if absent and not count:
        raise absent
