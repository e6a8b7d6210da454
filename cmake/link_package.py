"""Mirror a source package with symbolic links: link_package.py SOURCE TARGET. Stale links are removed."""

import sys
from pathlib import Path

source, target = Path(sys.argv[1]), Path(sys.argv[2])
for link in target.rglob("*"):
    if link.is_symlink() and not link.exists():
        link.unlink()
for file in source.rglob("*"):
    if file.is_dir() or (file.suffix not in (".py", ".pyi") and file.name != "py.typed"):
        continue
    link = target / file.relative_to(source)
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink() or link.resolve() != file.resolve():
        link.unlink(missing_ok=True)
        link.symlink_to(file)
