"""Runs the command without installing it: python3 -m gangplank."""

from __future__ import annotations

import sys

from gangplank.cli import main

sys.exit(main())
