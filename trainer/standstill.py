"""Where a rank that does nothing for long stands still: the Python stacks of all its threads, in its own log.

observe.py loads it beside a script that knows nothing of it, so it imports the standard library alone. What it prints
is read by gangplank/cluster/stuck.py; a test compares them.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

STUCK_S = 120.0  # without a step and an exchange; again after twice as long, and so on
FRAMES = 40  # of a thread, from the innermost outwards, and as many of the script beyond
LINES = 200  # of all threads
TEXT, LONGEST = 120, 400  # characters of a line of source, and of a line that is printed
MAIN, NAME = "MainThread", 64  # what the main thread is called, and characters of another one's name
LIBRARY = Path(os.__file__).parent  # Python's own modules
LAUNCHER = Path(__file__).with_name("torchrun.py")  # it forks its ranks, whose stacks begin in it
PACKAGES = frozenset({"site-packages", "dist-packages"})


class SecondsError(ValueError):
    """A time that is not in seconds: the variable, its value, and what it should be, in one line."""


def limit_s() -> float:
    """After how many seconds a rank says where it is; 0 for never."""
    return seconds("GANGPLANK_STUCK_S", STUCK_S)


def seconds(name: str, default: float) -> float:
    """The time in a variable; 0 for never."""
    text = os.environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < threading.TIMEOUT_MAX:
        raise SecondsError(f"{name}: got {text!r}, expected seconds, such as 30 or 0.5; 0 is never")
    return value


def folder() -> Path:
    """That of the script."""
    return Path(getattr(sys.modules["__main__"], "__file__", None) or sys.argv[0]).absolute().parent


def of_script(name: str, home: Path) -> str:
    """The path of a file from the script's folder; "" for one of Python, of a package, or from elsewhere."""
    path = Path(name).absolute()
    foreign = name.startswith("<frozen") or path.is_relative_to(LIBRARY) or path == LAUNCHER
    if foreign or not path.is_relative_to(home):
        return ""
    return "" if PACKAGES.intersection(path.relative_to(home).parts) else str(path.relative_to(home))


def stack(frame: FrameType | None, home: Path) -> list[tuple[bool, str]]:
    """Each frame from the innermost outwards: whether it is the script's, and its place in one line."""
    frames = []
    while frame is not None:
        code, line = frame.f_code, frame.f_lineno
        own = of_script(code.co_filename, home)
        text = linecache.getline(code.co_filename, line or 0).strip()[:TEXT]
        if not code.co_filename.startswith("<frozen importlib"):  # as in Python's own tracebacks
            place = f"{own or code.co_filename}:{line}, in {code.co_name}" + (f": {text}" if text else "")
            frames.append((bool(own), place[:LONGEST]))
        frame = frame.f_back
    return frames


def shown(frames: list[tuple[bool, str]]) -> list[str]:
    """A stack as far as the script's outermost frame: beyond is what started it. Its own are not left out."""
    ends = max((number for number, (own, _) in enumerate(frames, 1) if own), default=len(frames))
    lines = [text for number, (own, text) in enumerate(frames[:ends]) if own or number < FRAMES][:2 * FRAMES]
    return [*lines, f"{len(frames) - len(lines)} frames more"] if len(lines) < len(frames) else lines


def where() -> list[str]:
    """The innermost line of the script that the main thread is in, then the stack of each thread, a frame a line."""
    home, main = folder(), threading.main_thread().ident
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    names = {thread.ident: thread.name.replace(":", " ")[:NAME] for thread in threading.enumerate()} | {main: MAIN}
    place, lines = "its end", []
    for ident in sorted(frames, key=lambda one: (one != main, one)):
        parts = stack(frames[ident], home)
        if ident == main and parts:
            place = next((text for own, text in parts if own), parts[0][1])
        lines += [f"thread {names.get(ident, ident)}: {text}" for text in shown(parts)]
    more = [f"{len(lines) - LINES} lines more"] if len(lines) > LINES else []
    return [place, *lines[:LINES], *more]


def watch(limit_s: float, progress: Callable[[], object], say: Callable[[str], None],
          goes_on: Callable[[], bool] = lambda: True, joins: Callable[[], bool] = lambda: True) -> None:
    """Say where this rank is when `progress` has been the same for so long, and when that has ended; for a thread.

    A rank has twice as long until it joins the others (`joins`): it may have much to prepare.
    """
    rank = os.environ.get("RANK", "?")
    last, since, due_s, says = progress(), time.monotonic(), limit_s * (1 if joins() else 2), False
    while goes_on():
        time.sleep(limit_s / 8)
        if (now := progress()) != last:
            if says:
                say(f"gangplank: rank {rank}: it continues\n")
            last, since, due_s, says = now, time.monotonic(), limit_s, False
        elif (idle_s := time.monotonic() - since) >= due_s:
            due_s, says = 2 * due_s, True
            place, *frames = where()
            what = "no step and no exchange" if joins() else "not joined"
            lines = [f"{what} for {idle_s:.0f} s; it is at {place}", *frames]
            say("".join(f"gangplank: rank {rank}: {line}\n" for line in lines))


def begin(limit_s: float, *more: Any) -> None:
    """Watch this rank from a thread of its own."""
    threading.Thread(target=watch, args=(limit_s, *more), name="gangplank-observer", daemon=True).start()
