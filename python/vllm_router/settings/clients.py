"""Settings that tell clients apart: the header that names tenants, and classes of models' aliases.

    alias_class("nightly=batch")     as it is
    TenantHeader().check("Cookie")   raises Unfit, since its values are secrets

The classes are those of cpp/admission/priority_class.h.
"""

from __future__ import annotations

# ruff: noqa: D102, since Kind says what its methods mean
import dataclasses

from vllm_router.settings.kinds import Unfit
from vllm_router.settings.response_cache import HeaderName
from vllm_router.settings.urls import model_name

CLASSES = ("interactive", "default", "batch")
# Their values are secrets or describe the message, and names of tenants are logged; those of client_rules.cc.
NEVER_NAMES = (
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "cookie",
    "sec-websocket-protocol",
    "host",
    "content-length",
    "connection",
    "via",
    "transfer-encoding",
)


@dataclasses.dataclass(frozen=True)
class TenantHeader(HeaderName):
    """The name of a header that names tenants."""

    @property
    def limits(self) -> str:
        return "the name of a header that names tenants and holds no credential, such as X-Tenant-ID"

    def check(self, value: object) -> str:
        name = super().check(value)
        if name.lower() in NEVER_NAMES:
            raise Unfit
        return name


def alias_class(text: str) -> str:
    """The priority class of a model's alias, as --model-alias-class takes it."""
    name, _, given = text.rpartition("=")
    shape = "ALIAS=CLASS, where the class is interactive, default or batch"
    if given not in CLASSES:
        raise Unfit(shape, text)
    try:
        model_name(name)
    except Unfit:
        raise Unfit(shape, text) from None
    return text
