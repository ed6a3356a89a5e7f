"""Ctrl-C ends the tests and what they start, also where a shell runs them in the background and so ignores it.

Examples that hypothesis draws may take any time: a busy machine fails no test.
"""

from __future__ import annotations

import signal

from hypothesis import settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("gangplank", deadline=None)
settings.load_profile("gangplank")
