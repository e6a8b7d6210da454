"""DNS servers for tests: a fake that does as it is told, and a real dnsmasq.

with FakeDns() as dns:
    dns.set("vllm.test", "A", "10.0.0.1", "10.0.0.2", ttl=7)
    dns.set("_http._tcp.test", "SRV", "0 50 8000 w1.test.")
    dns.fail("other.test", "SERVFAIL")      or another rcode, "silence", "garbage"
    dns.fail("other.test", "referral")      or another response of SHAPES, which has no record of the name
    dns.fail("other.test", None)            as its records say
    dns.queries                             [("vllm.test.", "A", "udp"), …]

with Dnsmasq(tmp_path, "--srv-host=…") as dns:      skips the test where there is no dnsmasq, but not in CI
    dns.hosts("10.0.0.1 vllm.test")
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
from pathlib import Path
from typing import Any

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.resolver
import dns.rrset
import pytest

from tests.fakes.wire import PATIENCE, eventually

# Responses without a record that was looked up: section, owner (None: the name itself), type, record. `ra` is
# a server that resolves names for others, `aa` one that has the zone.
SHAPES: dict[str, list[tuple[str, str | None, str, str]]] = {
    "referral": [("authority", "test.", "NS", "ns.test.")],
    "referral of a target": [
        ("aa", None, "", ""),
        ("answer", None, "CNAME", "b.other."),
        ("authority", "other.", "NS", "ns."),
    ],
    "another name": [
        ("answer", "stranger.test.", "A", "10.9.9.9"),
        ("answer", "stranger.test.", "SRV", "0 0 1 x."),
    ],
    "CNAME loop": [("answer", None, "CNAME", "b.other."), ("answer", "b.other.", "CNAME", "b.other.")],
    "CNAME without its end": [("aa", None, "", ""), ("answer", None, "CNAME", "b.other.")],
    "no data": [("authority", "test.", "SOA", "ns.test. me.test. 1 2 3 4 5")],
    "no data, without a SOA": [],
    "no data, with the servers of the zone": [("aa", None, "", ""), ("authority", "test.", "NS", "ns.test.")],
    "no data of a target": [
        ("answer", None, "CNAME", "b.other."),
        ("authority", "other.", "SOA", "ns.other. me.other. 1 2 3 4 5"),
    ],
    "no data of a target, without a SOA": [("ra", None, "", ""), ("answer", None, "CNAME", "b.other.")],
}


def _absolute(name: str) -> str:
    return name.lower().rstrip(".") + "."


class FakeDns:
    """Responds on UDP and, with `tcp`, on TCP. A name without records does not exist (NXDOMAIN)."""

    def __init__(self, tcp: bool = True) -> None:
        self.queries: list[tuple[str, str, str]] = []  # name, type, transport
        self._records: dict[str, dict[str, tuple[int, tuple[str, ...]]]] = {}
        self._failures: dict[str, str] = {}
        self._changed = threading.Condition()
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._tcp: socket.socket | None = None
        if tcp:
            for _ in range(20):  # another program may have the port of the one in the other
                self._tcp = socket.create_server(("127.0.0.1", 0))
                with contextlib.suppress(OSError):
                    self._udp.bind(self._tcp.getsockname())
                    break
                self._tcp.close()
        else:
            self._udp.bind(("127.0.0.1", 0))
        self.port: int = self._udp.getsockname()[1]
        self._threads = [threading.Thread(target=self._serve_udp, daemon=True)]
        if tcp:
            self._threads.append(threading.Thread(target=self._serve_tcp, daemon=True))
        for thread in self._threads:
            thread.start()

    @property
    def address(self) -> str:
        """For --dns-server."""
        return f"127.0.0.1:{self.port}"

    def set(self, name: str, kind: str, *records: str, ttl: int = 60) -> None:
        """All records of this name and type."""
        kinds = self._records.setdefault(_absolute(name), {})
        kinds.pop(kind, None)
        if records:
            kinds[kind] = (ttl, records)

    def remove(self, name: str) -> None:
        self._records.pop(_absolute(name), None)

    def fail(self, name: str, how: str | None) -> None:
        if how is None:
            self._failures.pop(_absolute(name), None)
        else:
            self._failures[_absolute(name)] = how

    def names(self, since: int = 0) -> list[str]:
        """Names of the queries, without those that come by TCP once more."""
        return [name for name, _, transport in self.queries[since:] if transport == "udp"]

    def wait_for_queries(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.queries) >= count, PATIENCE), self.queries

    def resolver(self, lifetime: float = PATIENCE, **members: Any) -> dns.resolver.Resolver:
        """One that sends its queries here."""
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers = ["127.0.0.1"]
        resolver.port = self.port
        resolver.lifetime = lifetime
        for member, value in members.items():
            setattr(resolver, member, value)
        return resolver

    def close(self) -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", ("127.0.0.1", self.port))  # nothing else ends a recvfrom()
        if self._tcp is not None:
            with contextlib.suppress(OSError):
                self._tcp.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
        self._udp.close()
        if self._tcp is not None:
            self._tcp.close()

    def __enter__(self) -> FakeDns:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve_udp(self) -> None:
        while True:
            wire, client = self._udp.recvfrom(65536)
            if not wire:
                return
            if response := self._respond(wire, "udp"):
                self._udp.sendto(response, client)

    def _serve_tcp(self) -> None:
        assert self._tcp is not None
        while True:
            try:
                connection, _ = self._tcp.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError), connection.makefile("rb") as stream:
                (size,) = struct.unpack("!H", stream.read(2))
                if response := self._respond(stream.read(size), "tcp"):
                    connection.sendall(struct.pack("!H", len(response)) + response)

    def _respond(self, wire: bytes, transport: str) -> bytes | None:
        query = dns.message.from_wire(wire)
        name = query.question[0].name.to_text().lower()
        kind = dns.rdatatype.to_text(query.question[0].rdtype)
        with self._changed:
            self.queries.append((name, kind, transport))
            self._changed.notify_all()
        how = self._failures.get(name)
        if how == "silence":
            return None
        if how == "garbage":
            return wire[:2] + b"\xff" * 20
        response = dns.message.make_response(query)
        if how in SHAPES:
            for section, owner, type_, record in SHAPES[how]:
                if section in ("aa", "ra"):
                    response.flags |= dns.flags.from_text(section.upper())
                else:
                    made = dns.rrset.from_text(owner or name, 60, "IN", type_, record)
                    getattr(response, section).append(made)
        elif how is not None:
            response.set_rcode(dns.rcode.from_text(how))
        elif name not in self._records:
            response.set_rcode(dns.rcode.NXDOMAIN)
        else:
            self._add(response, name, kind)
        limit = 65535 if transport == "tcp" else max(512, query.payload)
        if len(response.to_wire(max_size=65535)) > limit:
            response.answer.clear()
            response.flags |= dns.flags.TC
        return response.to_wire(max_size=65535)

    def _add(self, response: dns.message.Message, name: str, kind: str) -> None:
        kinds = self._records[name]
        if "CNAME" in kinds:
            ttl, (target,) = kinds["CNAME"]
            response.answer.append(dns.rrset.from_text(name, ttl, "IN", "CNAME", target))
            name, kinds = target, self._records.get(target, {})
        if kind in kinds:
            ttl, records = kinds[kind]
            response.answer.append(dns.rrset.from_text(name, ttl, "IN", kind, *records))


class Dnsmasq:
    """A process of dnsmasq that knows what `hosts()` says, and what its options say."""

    def __init__(self, folder: Path, *options: str) -> None:
        program = shutil.which("dnsmasq") or shutil.which("dnsmasq", path="/usr/sbin")
        if program is None:
            if os.environ.get("CI"):
                pytest.fail("dnsmasq is missing; scripts/install_deps.sh ci installs it")
            pytest.skip("dnsmasq is missing")
        self._hosts = folder / "hosts"
        self._hosts.write_text("")
        self._command = [
            program,
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--pid-file=",
            "--no-resolv",
            "--no-hosts",
            f"--addn-hosts={self._hosts}",
            "--local=/test/",
            "--local-ttl=7",
            "--listen-address=127.0.0.1",
            "--bind-interfaces",
            *options,
        ]
        if os.geteuid() == 0:
            self._command.append("--user=root")  # which may read the folder
        for _ in range(20):  # another program may take the port before dnsmasq does
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
            if self._start():
                return
        raise AssertionError("dnsmasq did not start")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def hosts(self, *lines: str) -> None:
        """What /etc/hosts would say. It is so once this returns."""
        self._mark = getattr(self, "_mark", 0) + 1
        self._hosts.write_text("\n".join([*lines, f"10.255.0.{self._mark} mark.test", ""]))
        self.send(signal.SIGHUP)

        def read() -> bool:
            with contextlib.suppress(dns.exception.DNSException):
                found = self._resolver().resolve("mark.test.", "A")
                return [record.address for record in found] == [f"10.255.0.{self._mark}"]
            return False

        eventually(read)

    def send(self, which: signal.Signals) -> None:
        """SIGSTOP: no response any more, until SIGCONT."""
        self._process.send_signal(which)

    def _resolver(self) -> dns.resolver.Resolver:
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers = ["127.0.0.1"]
        resolver.port = self.port
        return resolver

    def _start(self) -> bool:
        self._process = subprocess.Popen(
            [*self._command, f"--port={self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

        def settled() -> bool:
            if self._process.poll() is not None:
                return True
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return True
            return False

        eventually(settled)
        return self._process.poll() is None

    def __enter__(self) -> Dnsmasq:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
