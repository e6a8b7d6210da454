"""URLs, origins and paths in settings, each in the form that the C++ core takes; a misfit raises `Unfit`.

    worker_url("http://gpu-0:8000@2")        as it is
    origin("https://chat.example/")          raises Unfit, since browsers send no path

They are the `each` of lists (`Words`). The C++ parsers decide; these say the remedy before anything starts.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from vllm_router._messages import quoted
from vllm_router._secrets import shown_urls
from vllm_router.settings.kinds import NotYet, Unfit, misfit_in_target


def worker_url(url: str) -> str:
    """A worker's URL, checked as far as is possible without the C++ parser, which decides."""
    base = re.sub(r"@[0-9]+/*$", "", url)
    scheme, separator, rest = base.partition("://")
    if "@" in re.split(r"[/?#]", rest if separator else base, maxsplit=1)[0]:
        raise Unfit(
            "URLs like http://host:8000, without anything before an '@' that reads as a user name: workers "
            "take no user names or passwords (a data-parallel rank is a number at the end, as in "
            "http://host:8000@2; the key for workers is --api-key)"
        )
    if separator and scheme.lower() in ("grpc", "grpcs", "unix"):
        shown = shown_urls(rest)
        raise NotYet(f"workers are reached by HTTP: use http://{shown} or https://{shown}")
    if separator and scheme.lower() in ("ray", "name"):
        raise Unfit(
            "URLs like http://host:8000: a server connects to its workers, and names (ray://, name://) are "
            "for programs that embed the router and connect to workers themselves",
            url,
        )
    if scheme.lower() not in ("http", "https") or not separator:
        raise Unfit("URLs like http://host:8000", url)
    try:
        parts = urlsplit(base)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or re.search(r"[\x00-\x20\x7f]", url):
        raise Unfit("URLs like http://host:8000, with a port between 1 and 65535", url)
    return url


def master_url(url: str) -> str:
    """The HTTP port of a Mooncake master, as --shared-cache-url takes it."""
    worker_url(url)
    if re.search(r"@[0-9]+/*$", url) or not re.fullmatch(r"https?://[^/?#]+/*", url, re.IGNORECASE):
        raise Unfit("URLs of a Mooncake master's HTTP port, such as http://mooncake:9003", url)
    return url


def dns_url(url: str) -> str:
    """The URL of workers whose addresses DNS knows, as --worker-dns takes them."""
    worker_url(url)
    host = urlsplit(url).hostname or ""
    remedy = "URLs with the name of a host that DNS resolves, such as http://vllm.svc:8000"
    if re.search(r"@[0-9]+/*$", url):
        raise Unfit(
            f"{remedy}, without the rank of one worker; set --intra-node-data-parallel-size for ranks"
        )
    if _is_address(host):
        raise Unfit(f"{remedy}; an address is one worker, and belongs to --worker-urls")
    if not _is_domain(host):
        raise Unfit(remedy, url)
    if url.lower().startswith("https:"):
        raise NotYet(
            "a worker that is found by its address cannot be verified by its name: use http://, or list the "
            "workers by name in --worker-urls or --worker-file"
        )
    return url


def srv_name(text: str) -> str:
    """The name of SRV records, as --worker-srv takes them."""
    if _is_address(text) or not _is_domain(text):
        raise Unfit(
            "names of SRV records such as _http._tcp.vllm.svc, without a scheme and a port: letters, digits, "
            "- and _ between dots, at most 63 each and 253 together",
            text,
        )
    return text


def _is_domain(name: str) -> bool:
    labels = name.removesuffix(".").split(".")
    if labels[-1].isdigit():  # an IPv4 address to every resolver, a whole one or not
        return False
    return len(name) <= 253 and all(re.fullmatch(r"(?!-)[A-Za-z0-9_-]{1,63}", label) for label in labels)


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def validation_url(url: str) -> str:
    """A URL that is asked about keys; as strict as the C++ parser, whose message would show it."""
    remedy = "write it as https://auth.example/validate"
    match = re.fullmatch(r"(https?)://([^/?]*)([/?].*)?", url, re.IGNORECASE | re.DOTALL)
    if match is None:
        raise Unfit(
            f"URLs such as https://auth.example/validate, with http:// or https:// in front; {remedy}"
        )
    authority = match[2]
    if "@" in authority:
        raise Unfit(
            "URLs without user names and passwords (before an '@'), since the client's own Authorization is "
            f"sent there; {remedy}"
        )
    position = misfit_in_target(url)
    if position is not None:
        raise Unfit(
            "URLs of visible ASCII characters without #, since they stand in a request line, and the "
            f"character at position {position} of one is none of these: remove it or write it "
            "percent-encoded"
        )
    host = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]+))?", authority)
    if host is None or not _is_host(host[1]) or not 1 <= int(host[2] or 80) <= 65535 or len(url) > 2048:
        raise Unfit(
            "URLs of a host and perhaps a port between 1 and 65535 and a path, of 2048 characters at most; "
            f"{remedy}"
        )
    return url


def _is_host(host: str) -> bool:
    """Whether the C++ parser takes it: a name, an IPv4 address, or an IPv6 address in brackets."""
    try:
        if host[0] == "[":
            return bool(ipaddress.IPv6Address(host[1:-1]))
        if re.search(r"(^|\.)[0-9]+$", host):
            return bool(ipaddress.IPv4Address(host))
    except ValueError:
        return False
    return len(host) <= 253 and host[0] != "." and ".." not in host


def origin(text: str) -> str:
    """An origin as browsers write it, since it is compared letter by letter; or any, as "*"."""
    if text == "*":
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    usable = parts.scheme and parts.netloc and not parts.path and not parts.query and not parts.fragment
    if not usable or text != text.lower() or re.search(r"[\x00-\x20\x7f-\U0010ffff@]", text):
        raise Unfit(
            "origins like https://chat.example or http://localhost:3000, in lower case and without a path, "
            "or *",
            text,
            "is none of these",
        )
    return text


def fan_out_path(text: str) -> str:
    """A path, or all that begin so; never all there are. With `GET ` before it its GET goes to all, too."""
    name = text.removeprefix("GET ").removesuffix("*")
    if not re.fullmatch(r"/[!-~]+", name) or re.search(r"[*?#%]", name):
        raise Unfit(
            "paths like /own_rpc, or /hooks* for all paths with that prefix, without a query, each with GET "
            f"and a space before it if GET goes to all workers, too, and {quoted(text)} is none of these"
        )
    return text


def pd_route(text: str) -> str:
    """A path whose requests two workers serve, as --pd-extra-routes takes it."""
    if not re.fullmatch(r"/[!-~]+", text) or re.search(r"[*?#%]", text):
        raise Unfit(f"paths like /v2/generate, without a query, and {quoted(text)} is none of these")
    return text


_ZMQ_HOST = r"\[[0-9a-fA-F:.]+\]|[^:/\[\]\s;]+"


def event_source(text: str) -> str:
    """A worker and the ZeroMQ endpoints of its ranks, as --kv-event-source takes them."""
    shape = "WORKER_URL=ENDPOINT[,ENDPOINT...], such as http://gpu-0:8000=tcp://gpu-0:5557"
    url, equals, endpoints = text.rpartition("=")
    if not equals or not url:
        raise Unfit(shape, text)
    for endpoint in endpoints.split(","):
        if re.fullmatch(r"ipc://.{1,107}", endpoint):
            continue
        match = re.fullmatch(rf"tcp://({_ZMQ_HOST}):([0-9]{{1,5}})", endpoint)
        if match is None or not 1 <= int(match[2]) <= 65535:
            raise Unfit(f"{shape}, with endpoints tcp://HOST:PORT or ipc://PATH", text)
        if match[1] in ("*", "0.0.0.0", "[::]"):
            raise Unfit(f"{shape}; {match[1]} stands for every address, so name the host", text)
    return f"{worker_url(url)}={endpoints}"


def is_model_name(text: str) -> bool:
    """Whether requests may name a model so: in 1 to 256 bytes, without control characters."""
    return 1 <= len(text.encode("utf-8", "replace")) <= 256 and not re.search(r"[\x00-\x1f\x7f]", text)


def model_name(text: str) -> str:
    """A model's name as requests have it."""
    if not is_model_name(text):
        raise Unfit("names of models, of 1 to 256 bytes without control characters", text)
    return text


def model_alias(text: str) -> str:
    """Another name of a model, or of several with weights, as --model-alias takes it."""
    shape = "NAME=MODEL, or NAME=MODEL:WEIGHT,MODEL:WEIGHT with whole numbers"
    name, equals, models = text.partition("=")
    targets = [models]
    if "," in models:
        pairs = [one.rpartition(":") for one in models.split(",")]
        if len(pairs) > 16 or not all(re.fullmatch("[0-9]{1,7}", weight) for _, _, weight in pairs):
            raise Unfit(shape, text)
        weights = [int(weight) for _, _, weight in pairs]
        if not any(weights) or max(weights) > 1_000_000:
            raise Unfit(f"{shape} from 0 to 1000000, of which one is above 0", text)
        targets = [target for target, _, _ in pairs]
    if not equals or name in targets:
        raise Unfit(shape, text)
    for part in (name, *targets):
        try:
            model_name(part)
        except Unfit:
            raise Unfit(shape, text) from None
    return text


def ip_range(text: str) -> str:
    """An IP address or a range of them, as --vllm-discovery-allow takes them."""
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        raise Unfit("an IP address or a range of them, such as 10.0.0.0/8", text) from None
    _, slash, bits = text.partition("/")
    if "%" in text or (slash and not re.fullmatch(r"[0-9]{1,3}", bits)):
        raise Unfit("an IP address or a range of them, such as 10.0.0.0/8", text)
    return text


def bind_endpoint(text: str) -> str:
    """A ZeroMQ endpoint to listen at, as --kv-events-bind takes them."""
    match = re.fullmatch(rf"tcp://({_ZMQ_HOST}):([0-9]{{1,5}}|\*)", text)
    if re.fullmatch(r"ipc://.{1,107}", text) or (match and (match[2] == "*" or 1 <= int(match[2]) <= 65535)):
        return text
    raise Unfit("tcp://*:PORT, tcp://ADDRESS:PORT or ipc://PATH, such as tcp://*:5557", text)


def prefix_source(text: str) -> str:
    """A name and the URL of a stream of events about prefixes, as --kv-prefix-source takes them."""
    shape = (
        "NAME=URL[,reconnect_interval_ms=N][,worker=URL], such as gpu-0=http://gpu-0:8000/v1/kv_events, with "
        "a comma of the URL written as %2C"
    )
    name, _, rest = text.partition("=")
    url, *parts = rest.split(",")
    if re.match(r"wss?://", url, re.IGNORECASE):
        raise NotYet("events about prefixes are read by HTTP: use http:// or https://")
    match = re.match(r"(https?://[^/?#]+)([/?][!-~]{0,2047})?$", url, re.IGNORECASE)
    if not 1 <= len(name.encode()) <= 128 or match is None or "#" in url or "@" in match[1]:
        raise Unfit(shape, text)
    worker_url(match[1])
    for part in parts:
        key, _, value = part.partition("=")
        if key == "worker":
            worker_url(value)
        elif key != "reconnect_interval_ms":
            raise Unfit(shape, text)
        elif not re.fullmatch(r"[0-9]{1,5}", value) or not 1 <= int(value) <= 60_000:
            raise Unfit(f"{shape}, with a reconnect_interval_ms between 1 and 60000", text)
    return text
