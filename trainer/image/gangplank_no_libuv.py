"""Make torchrun work where torch was built without libuv (Debian's is) and the environment says USE_LIBUV=0.

torch 2.14 reads USE_LIBUV in some of the places that open a TCPStore; torchrun's static rendezvous and its own
store are not among them and fail. This module, loaded by gangplank_no_libuv.pth at the start of Python, waits until
torch.distributed is imported and then gives TCPStore's `use_libuv` the default that the environment asks for.
"""

import importlib.abc
import importlib.util
import os
import sys


def obey_environment(tcp_store):
    """Let TCPStore() take use_libuv=False unless the caller says otherwise."""
    build = tcp_store.__init__

    def build_obediently(self, *args, **kwargs):
        if len(args) < 9:  # use_libuv is the ninth parameter
            kwargs.setdefault("use_libuv", False)
        build(self, *args, **kwargs)

    tcp_store.__init__ = build_obediently


class AfterRendezvous(importlib.abc.MetaPathFinder):
    """Acts once, when torch.distributed.rendezvous has been executed; costs nothing in any other program."""

    def find_spec(self, name, _path, _target=None):
        """Answer for one module only, and only once."""
        if name != "torch.distributed.rendezvous":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            obey_environment(module.TCPStore)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("USE_LIBUV") == "0":
    sys.meta_path.insert(0, AfterRendezvous())
