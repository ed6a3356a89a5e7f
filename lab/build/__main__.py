"""`python -m lab.build [PART ...]`."""

from __future__ import annotations

import os
import sys

from lab.build.parts import main

if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
