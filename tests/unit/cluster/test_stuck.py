"""Where ranks stand still, in one message."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gangplank.cluster.failure import FRAME
from gangplank.cluster.stuck import CONTINUES, SAID, Stuck

LINE = "gangplank: rank {}: no step and no exchange for {} s; it is at {}"
HERE = "a.py:4, in train: dist.barrier()"


def test_ranks_at_one_place_are_named_together_once_all_have_spoken() -> None:
    ranks = Stuck(3)
    assert ranks.take(LINE.format(2, 120, HERE), 5.0)
    assert ranks.take(LINE.format(0, 121, HERE), 6.0)
    assert ranks.message(7.0) == ""
    assert ranks.take(LINE.format(1, 120, "a.py:9, in load: time.sleep(1)"), 8.0)
    text = ranks.message(8.0)
    assert text.startswith(f"no step and no exchange for 121 s: ranks 0, 2 are at {HERE}; rank 1 is at a.py:9, in load")
    assert ranks.message(9.0) == ""
    assert ranks.take(LINE.format(1, 240, HERE), 130.0), "it says so again after twice as long"
    assert ranks.message(131.0) == ""


def test_a_rank_that_says_nothing_is_named_after_a_while() -> None:
    ranks = Stuck(3)
    ranks.take(LINE.format(0, 120, HERE), 5.0)
    assert ranks.message(14.9) == ""
    assert f"rank 0 is at {HERE}; ranks 1, 2 said nothing. Fix: " in ranks.message(15.0)


def test_ranks_of_a_job_that_does_not_say_how_many_it_has_are_all_named() -> None:
    """Those above the number of its pods were taken for the script's own lines."""
    ranks = Stuck(None)
    assert ranks.take(LINE.format(7, 120, HERE), 5.0)
    assert ranks.take(LINE.format(5, 120, HERE), 5.0)
    assert not ranks.take(LINE.format(10_000, 120, HERE), 5.0), "a script may print any number"
    assert ranks.message(14.9) == "", "others may follow"
    text = ranks.message(15.0)
    assert f"ranks 5, 7 are at {HERE}; ranks 0, 1, 2, 3, 4, 6 said nothing. Fix: " in text


def test_a_rank_that_began_again_is_no_longer_named_and_its_seconds_are_forgotten() -> None:
    """Torchrun starts it in the same container; the one before never said that it continues."""
    ranks = Stuck(2)
    start = '{"event":"start","rank":0,"world_size":2,"host":"a","pod":"a-0","node":"n","job_uid":null,"pod_uid":null}'
    ranks.take(LINE.format(0, 480, HERE), 5.0)
    assert not ranks.take(start, 6.0)
    ranks.take(LINE.format(1, 120, HERE), 130.0)
    assert ranks.message(131.0) == ""
    text = ranks.message(140.0)
    assert text.startswith(f"no step and no exchange for 120 s: rank 1 is at {HERE}; rank 0 said nothing")


def test_a_rank_that_goes_on_is_no_longer_named() -> None:
    ranks = Stuck(2)
    ranks.take(LINE.format(0, 120, HERE), 5.0)
    assert ranks.take("gangplank: rank 0: it continues", 6.0)
    assert ranks.message(60.0) == ""


def test_a_rank_that_has_not_joined_is_named_with_those_that_wait_for_it() -> None:
    ranks = Stuck(2)
    ranks.take("gangplank: rank 1: not joined for 240 s; it is at a.py:2, in <module>: fetch()", 5.0)
    assert ranks.message(60.0) == "", "alone, it may have much to prepare"
    ranks.take(LINE.format(0, 120, "a.py:3, in <module>: dist.init_process_group()"), 61.0)
    assert ranks.message(61.0) == (
        "no step and no exchange for 240 s: rank 0 is at a.py:3, in <module>: dist.init_process_group(); rank 1 is at "
        "a.py:2, in <module>: fetch(), before joining. Fix: every rank has to come to init_process_group"
    )
    ranks.take(LINE.format(1, 120, HERE), 400.0)
    assert ranks.message(410.0).endswith("Fix: all ranks have to call the same collectives in the same order")


def test_a_progress_bar_before_the_line_does_not_hide_it() -> None:
    assert Stuck(3).take("\rstep 10/100" + LINE.format(1, 120, HERE), 0.0)


def test_a_script_s_own_lines_are_not_taken() -> None:
    assert not Stuck(3).take("rank 0: no step and no exchange for 120 s", 0.0)


SCRIPT = """
import importlib.util, os, queue, sys, threading, time
spec = importlib.util.spec_from_file_location("standstill", sys.argv[1])
standstill = importlib.util.module_from_spec(spec)
spec.loader.exec_module(standstill)
from lib.data import load
steps, lines = [0], []
def say(text):
    os.write(1, text.encode())
    if "it continues" in text:
        os._exit(0)
    standstill.time.sleep(0.1)
    steps[0] += 1
standstill.begin(0.4, lambda: steps[0], say)
threading.Thread(target=queue.Queue().get, name="load: 1", daemon=True).start()
def walk(depth):
    return walk(depth - 1) if depth else load(threading.Event())
walk(int(sys.argv[2]))
"""
STANDSTILL = Path(__file__).parents[3] / "trainer/standstill.py"


def printed(folder: Path, depth: int) -> list[str]:
    """What a rank prints when it waits for a minute, so many calls deep in its script, and then continues."""
    (folder / "lib").mkdir()
    (folder / "lib/data.py").write_text("def load(event):\n    event.wait(60)\n")
    (folder / "a.py").write_text(SCRIPT)
    words = [sys.executable, str(folder / "a.py"), str(STANDSTILL), str(depth)]
    return subprocess.run(
        words, env={"RANK": "1"}, cwd="/", capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()


def test_a_rank_that_stands_still_prints_the_whole_stack_of_each_thread(tmp_path: Path) -> None:
    said, *frames, ends = printed(tmp_path, 1)
    assert SAID.match(said)
    assert said.endswith("it is at lib/data.py:2, in load: event.wait(60)")
    assert CONTINUES.match(ends)
    threads = [match.groups() for line in frames if (match := FRAME.match(line))]
    assert len(threads) == len(frames)
    main = [text for rank, thread, text in threads if (rank, thread) == ("1", "MainThread")]
    assert [text.rpartition("/")[2].partition(":")[0] for text in main] == [
        "threading.py", "threading.py", "data.py", "a.py", "a.py", "a.py"
    ]  # fmt: skip
    assert main[2:] == [
        "lib/data.py:2, in load: event.wait(60)",
        "a.py:17, in walk: return walk(depth - 1) if depth else load(threading.Event())",
        "a.py:17, in walk: return walk(depth - 1) if depth else load(threading.Event())",
        "a.py:18, in <module>: walk(int(sys.argv[2]))",
    ]
    assert any("in get: self.not_empty.wait()" in text for _, thread, text in threads if thread == "load  1")
    assert "gangplank-observer" not in "".join(frames)
    ranks = Stuck(2)
    assert all(ranks.take(line, 0.0) for line in (said, *frames))
    assert ranks.callers() == [f"rank 1: called from {'; from '.join(main[3:])}"]


def test_a_stack_is_bounded_and_its_innermost_frames_stay(tmp_path: Path) -> None:
    said, *frames, _ = printed(tmp_path, 900)
    assert "it is at lib/data.py:2" in said
    main = [line for line in frames if ": thread MainThread: " in line]
    assert len(main) == 81
    assert main[-1].endswith(": thread MainThread: 825 frames more")
    assert sum(map(len, frames)) < 20_000


def test_of_a_deep_library_the_script_s_own_frames_are_printed_and_what_started_the_script_is_not() -> None:
    library, own = (False, "/lib/x.py:1, in f"), (True, "a.py:2, in g")
    shown = runpy.run_path(str(STANDSTILL))["shown"]
    assert shown([*50 * [library], own, library, own, *9 * [library]]) == [
        *40 * [library[1]], own[1], own[1], "20 frames more"
    ]  # fmt: skip
    assert shown(3 * [library]) == 3 * [library[1]]


@pytest.mark.parametrize("value", ["2m", "-1", "nan", "inf"])
def test_a_limit_that_is_no_number_of_seconds_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGPLANK_STUCK_S", value)
    trainer = runpy.run_path(str(STANDSTILL))
    expected = f"GANGPLANK_STUCK_S: got '{value}', expected seconds, such as 30 or 0.5; 0 is never"
    with pytest.raises(trainer["SecondsError"], match=expected):
        trainer["limit_s"]()


@pytest.mark.parametrize(("value", "counts"), [("2m", 120.0), ("inf", 120.0), ("", 120.0), ("0", 0.0), ("5", 5.0)])
def test_the_observer_of_a_script_names_a_time_that_is_none_and_observes_with_the_default(
    value: str, counts: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error would end the observation. The observer imports torch, so that its function runs alone here."""
    tree = ast.parse(STANDSTILL.with_name("observe.py").read_text())
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "seconds_of")
    function.returns, function.args.args[0].annotation = None, None
    lines: list[str] = []
    namespace: dict[str, Any] = {"emit": lines.append}
    exec(compile(ast.Module([function], []), "observe.py", "exec"), namespace)  # noqa: S102  our own function
    monkeypatch.setenv("A_S", value)
    standstill = SimpleNamespace(**runpy.run_path(str(STANDSTILL)))
    assert namespace["seconds_of"](standstill, "A_S", 120.0) == counts
    expected = f"gangplank: A_S: got '{value}', expected seconds, such as 30 or 0.5; 0 is never; 120 counts instead\n"
    assert lines == ([expected] if value in {"2m", "inf"} else [])
    calls = {node.args[1].value for node in ast.walk(tree) if isinstance(node, ast.Call)
             and getattr(node.func, "id", "") == "seconds_of" and isinstance(node.args[1], ast.Constant)}  # fmt: skip
    assert calls == {"GANGPLANK_STUCK_S", "GANGPLANK_PACE_S"}


def test_the_observer_and_the_trainer_say_it_with_the_same_words() -> None:
    trainer = STANDSTILL.parent
    assert 'beside("standstill")' in (trainer / "observe.py").read_text()
    assert "standstill.begin(limit_s, lambda: self.batches, say_lines" in (trainer / "train.py").read_text()


@pytest.mark.parametrize(("name", "own"), [
    ("/opt/gangplank/trainer/train.py", "train.py"), ("/opt/gangplank/trainer/more/a.py", "more/a.py"),
    ("/opt/gangplank/trainer/venv/lib/python3.14/site-packages/torch/a.py", ""), ("/opt/a.py", ""),
    ("<frozen runpy>", ""), (threading.__file__, ""), (str(STANDSTILL.with_name("torchrun.py")), ""),
])  # fmt: skip
def test_a_file_of_the_script_s_folder_is_its_own_but_for_packages_and_the_launcher(name: str, own: str) -> None:
    of_script = runpy.run_path(str(STANDSTILL))["of_script"]
    home = STANDSTILL.parent if name.endswith("torchrun.py") else Path("/opt/gangplank/trainer")
    assert of_script(name, home) == own
