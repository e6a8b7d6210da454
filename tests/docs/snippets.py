"""The Python of pages, and which pages need a package that `make test` does not have."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Pages below docs/how-to, and the package that each is about, or `clients`; `make test-hosts` runs these.
HOSTS = {
    "use_client_libraries.md": "clients",
    "use_in_litellm.md": "litellm",
    "use_in_ray_serve.md": "ray",
}


def blocks(page: Path) -> list[str]:
    """The blocks of a page that are Python."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
