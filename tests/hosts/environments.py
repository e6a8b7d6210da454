"""Which environment this is: `make test-hosts` runs pytest in each of build/hosts/<host>-<version>."""

import sys
from pathlib import Path

import pytest

HOST = Path(sys.prefix).name.partition("-")[0]


def only_in(host: str) -> None:
    """Skip a module in the environments of other hosts."""
    if host != HOST:
        pytest.skip(f"runs in the environments of {host}; run `make test-hosts`", allow_module_level=True)
