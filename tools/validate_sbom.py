"""Validate bills of materials against CycloneDX's schema, which the package brings along: nothing is fetched.

It needs requirements-sbom.txt, which `make sbom` installs into a virtual environment of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion  # type: ignore[import-not-found]  # not in .venv, which `make train` needs
from cyclonedx.validation.json import JsonStrictValidator  # type: ignore[import-not-found]  # as above


def main(folder: Path) -> int:
    """Name every file that is not valid; exit status 1 if any is not, or there is none."""
    files = sorted(folder.glob("*.cdx.json"))
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    errors = {path: validator.validate_str(path.read_text()) for path in files}
    for path, error in errors.items():
        if error:
            print(f"{path}: got {str(error)[:500]}, expected CycloneDX 1.6. Fix: correct lab/build/sbom.py")
    if not files:
        print(f"{folder}: got no bill, expected *.cdx.json. Fix: make sbom")
    print(f"{len(files)} files, {len([error for error in errors.values() if error])} not valid")
    return int(not files or any(errors.values()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
