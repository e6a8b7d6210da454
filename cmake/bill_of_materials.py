"""Prints a CycloneDX bill of the libraries that a wheel contains.

    bill_of_materials.py VERSIONS COMPILER

VERSIONS has a line for each, Debian's name of the source package and its version; COMPILER is what
`cc --version` says. A wheel carries it as PEP 770 has it, in `*.dist-info/sboms`.
"""

import json
import sys
from pathlib import Path
from urllib.parse import quote

LICENSES = {
    "abseil": "Apache-2.0",
    "hiredis": "BSD-3-Clause",
    "libboost1.81-dev": "BSL-1.0",
    "libxxhash-dev": "BSD-2-Clause",
    "nghttp2": "MIT",
    "openssl": "Apache-2.0",
    "prometheus-cpp": "MIT",
    "simdjson": "Apache-2.0",
    "zeromq3": "LGPL-3.0-or-later WITH LGPL-3.0-linking-exception",
}


def main(versions: str, compiler: str) -> None:
    """Prints it."""
    components = []
    for line in Path(versions).read_text().splitlines():
        name, version = line.split()
        components.append(
            {
                "type": "library",
                "name": name,
                "version": version,
                "licenses": [{"expression": LICENSES[name]}],
                "purl": f"pkg:deb/debian/{name}@{quote(version, safe='')}?distro=bookworm",
            }
        )
    components.append(
        {
            "type": "library",
            "name": "libc++",
            "version": compiler.split("version ")[-1].split()[0],
            "licenses": [{"expression": "Apache-2.0 WITH LLVM-exception"}],
        }
    )
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}
    print(json.dumps(bill, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
