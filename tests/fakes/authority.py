"""Certificates for tests: an authority made for the occasion, and what it vouches for.

authority = Authority(tmp_path)
files = authority.certify("localhost", "127.0.0.1")       # files.cert, files.key: paths
harness.router(worker, tls_cert_path=files.cert, tls_key_path=files.key)
harness.client(router, tls=authority.client())
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme


@dataclass(frozen=True)
class Files:
    cert: str  # the certificate, then those between it and the authority
    key: str


class _Connected(ssl.SSLSocket):
    """Of a connection that may have been reset: `wrap_socket()` raises then, and would leave it open."""

    def getpeername(self) -> Any:
        try:
            return super().getpeername()
        except OSError as error:
            if self.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                raise  # it listens, and has no peer
            self.close()
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from error


class Authority:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ca = trustme.CA()
        self._made = 0
        self.path = str(directory / f"ca-{id(self)}.pem")
        self._ca.cert_pem.write_to_path(self.path)

    def certify(self, *names: str, ends: dt.datetime | None = None) -> Files:
        """Certificate and key for names and addresses."""
        self._made += 1
        began = None if ends is None else ends - dt.timedelta(days=30)
        made = self._ca.issue_cert(*names, not_before=began, not_after=ends)
        files = Files(self._path("cert"), self._path("key"))
        self._write(made, files)
        return files

    def replace(self, files: Files, *names: str) -> None:
        """Another certificate and key in the same files."""
        self._write(self._ca.issue_cert(*names), files)

    def _path(self, what: str) -> str:
        return str(self._directory / f"{what}-{id(self)}-{self._made}.pem")

    @staticmethod
    def _write(made: trustme.LeafCert, files: Files) -> None:
        Path(files.cert).write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        Path(files.key).write_bytes(made.private_key_pem.bytes())

    def client(self, files: Files | None = None) -> ssl.SSLContext:
        """Trusts this authority; shows `files` to a server that asks."""
        context = ssl.create_default_context(cafile=self.path)
        context.sslsocket_class = _Connected
        if files is not None:
            context.load_cert_chain(files.cert, files.key)
        return context

    def server(self, *names: str, ask: bool = False, ends: dt.datetime | None = None) -> ssl.SSLContext:
        """A worker's side, certified for the names; with `ask`, its clients need this authority's word."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sslsocket_class = _Connected
        files = self.certify(*names, ends=ends)
        context.load_cert_chain(files.cert, files.key)
        if ask:
            context.load_verify_locations(self.path)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
