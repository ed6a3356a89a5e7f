"""Fill a checkout's own .venv with the packages of a shared one: `.venv/bin/python tools/venv_of_checkout.py SHARED`.

Packages are not copied: a .pth file names the shared ones and this checkout, whose code therefore runs here and nowhere
else. Commands are copies that start this .venv's Python, by way of sh, since a shebang takes no blanks in a path.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGINNING = re.compile(rb"#!/bin/sh\n'''exec' .*\n' '''\n|#!.*python.*\n")  # of a command that pip made, either way
GANGPLANK = b"import sys\n\nfrom gangplank.cli import main\n\nsys.exit(main())\n"


def main(shared: Path) -> None:
    """Write the .pth file and the commands."""
    packages = Path(sysconfig.get_path("purelib"))
    theirs = shared / packages.relative_to(sys.prefix)
    (packages / "checkout.pth").write_text(f"import site; site.addsitedir({str(theirs)!r})\n{ROOT}\n")
    folder = Path(sys.prefix) / "bin"
    begin = f"#!/bin/sh\n'''exec' '{folder}/python' \"$0\" \"$@\"\n' '''\n".encode()
    commands = {"gangplank": GANGPLANK}
    for source in (shared / "bin").iterdir():
        if source.is_symlink() or (folder / source.name).exists() or source.name.lower().startswith("activate"):
            continue
        content = source.read_bytes()
        if start := BEGINNING.match(content):
            commands[source.name] = content[start.end() :]
        else:
            (folder / source.name).symlink_to(source)
    for name, body in commands.items():
        (folder / name).write_bytes(begin + body)
        (folder / name).chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
