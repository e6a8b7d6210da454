"""The version, under the name that vllm-project/router has for it."""

from __future__ import annotations

from vllm_router._version import __version__

__all__ = ["__version__"]
