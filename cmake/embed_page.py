"""Joins a page's HTML, CSS and JavaScript for C++: `embed_page.py x.html x.css x.js out.inc`.

The page has @STYLE@ and @SCRIPT@ where these belong. Written are `kPage` and `kPageGzip`, as arrays of bytes,
and `kStyleHash` and `kScriptHash`, as a Content-Security-Policy names them. The same sources give the same
bytes.
"""

import base64
import gzip
import hashlib
import sys
from pathlib import Path

LARGEST = 64 << 10  # bytes of a page


def source_hash(text: str) -> str:
    """`sha256-…` of an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def array(name: str, data: bytes) -> str:
    """A C++ array of these bytes."""
    lines = [",".join(map(str, data[at : at + 32])) for at in range(0, len(data), 32)]
    return f"constexpr unsigned char {name}[] = {{\n" + ",\n".join(lines) + "};\n"


def join(html: Path, css: Path, script: Path) -> tuple[str, str, str]:
    """The page, and the style and the script in it."""
    style, code = (path.read_text(encoding="utf-8") for path in (css, script))
    if "</style" in style or "</script" in code:
        sys.exit(f"{css} or {script} ends its own element")
    page = html.read_text(encoding="utf-8").replace("@STYLE@", style).replace("@SCRIPT@", code)
    return page, style, code


def main(html: str, css: str, script: str, out: str) -> None:
    """Writes `out`."""
    text, style, code = join(Path(html), Path(css), Path(script))
    page = text.encode()
    if len(page) > LARGEST:
        sys.exit(f"{html} has {len(page)} bytes with its style and script; a page has at most {LARGEST}")
    made = array("kPage", page) + array("kPageGzip", gzip.compress(page, 9, mtime=0))
    for name, content in (("kStyleHash", style), ("kScriptHash", code)):
        made += f'constexpr char {name}[] = "{source_hash(content)}";\n'
    Path(out).write_text(made, encoding="ascii")


if __name__ == "__main__":
    main(*sys.argv[1:])
