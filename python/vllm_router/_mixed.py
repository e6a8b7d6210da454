"""A warning where files of another distribution named vllm-router lie among ours.

vllm-project/router and production-stack have packages of this name. pip replaces one by the other; `--target`
directories, image layers and copied files do not, and then imports come from both.
"""

from __future__ import annotations

import os
import warnings

# Theirs and never ours, beside the package and in it.
_BESIDE = ("vllm_router_rs.abi3.so",)
_INSIDE = ("launch_server.py", "app.py", "service_discovery", "services", "stats")


def foreign_files(package: str, version: str) -> list[str]:
    """Paths of what another distribution has left in the package or beside it."""
    beside = os.path.dirname(package)  # noqa: PTH120, pathlib would cost the import 5 ms
    found = [os.path.join(beside, name) for name in _BESIDE]  # noqa: PTH118
    found += [os.path.join(package, name) for name in _INSIDE]  # noqa: PTH118
    found = [path for path in found if os.path.exists(path)]  # noqa: PTH110
    try:
        names = os.listdir(beside)  # noqa: PTH208
    except OSError:
        names = []
    metadata = f"vllm_router-{version}.dist-info"
    found += [
        os.path.join(beside, name)  # noqa: PTH118
        for name in sorted(names)
        if name.startswith("vllm_router-") and name.endswith(".dist-info") and name != metadata
    ]
    return found


def warn_of_foreign_files(package: str, version: str) -> None:
    """A RuntimeWarning that names them, if there are any."""
    found = foreign_files(package, version)
    if found:
        warnings.warn(
            f"vllm_router {version} in {package} is mixed with files of another distribution named "
            f"vllm-router: {', '.join(found)}. Imports may come from either; run pip uninstall vllm-router "
            "until nothing is left, then install one of them",
            RuntimeWarning,
            stacklevel=3,
        )
