"""Let the trainer's observe.py watch a rank whose script knows nothing of it; loaded at every start of Python.

It acts in the processes of a job's ranks alone, and only when they import torch. GANGPLANK_OBSERVE=0 switches it off; a
pod that does not say which pod it is (GANGPLANK_POD_UID) is watched only with GANGPLANK_OBSERVE=1. A failure here is
one line on standard error: the script runs on, and its evidence says less.
"""

import importlib.abc
import importlib.util
import os
import sys
import time

OBSERVER = "/opt/gangplank/trainer/observe.py"
NAME = "gangplank_observer"  # the module's name in this process; not `observe`, which a script may import as its own
LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "torchrun", "torchrun.py")


def wanted(env, words):
    """Whether this process is a rank that is to be observed: it knows its place, and is not torchrun itself."""
    asked = env.get("GANGPLANK_OBSERVE") or ("1" if env.get("GANGPLANK_POD_UID") else "0")
    launcher = "TORCHELASTIC_RUN_ID" not in env and any(word.rsplit("/", 1)[-1] in LAUNCHERS for word in words)
    return asked == "1" and bool(env.get("RANK")) and bool(env.get("WORLD_SIZE")) and not launcher


def start():
    """Load the observer and let it watch; torch has been imported. Returns it, None if it cannot be loaded."""
    began = time.thread_time()
    try:
        spec = importlib.util.spec_from_file_location(NAME, OBSERVER)
        observer = sys.modules[NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(observer)
        observer.install(began)
    except Exception as error:  # noqa: BLE001  # whatever it is, the script does not depend on it
        print(f"gangplank: this rank is not observed: {type(error).__name__}: {error}", file=sys.stderr)
        return None
    return observer


class AfterTorch(importlib.abc.MetaPathFinder):
    """Acts once, when torch has been executed; costs nothing in any other program."""

    asks = False  # whether it looks for torch itself

    def find_spec(self, name, _path, _target=None):
        """Answer for one module only; a program may ask whether there is one, and import it later or never."""
        if name != "torch" or self.asks:
            return None
        self.asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asks = False
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            sys.meta_path.remove(self)
            execute(module)
            start()

        spec.loader.exec_module = exec_module
        return spec


if wanted(os.environ, sys.orig_argv):
    sys.meta_path.insert(0, AfterTorch())
