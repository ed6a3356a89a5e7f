"""Wait until the cluster accepts an object, or refuses it with the words that it should; nothing is made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from plugins.cluster import KUBECONFIG, Asking


class ActionModule(Asking):
    """Arguments: definition, refusal (words of the answer; accepted where not given), timeout_s, kubeconfig.

    The server's dry run asks every webhook, so that its certificate and its answer are seen too.
    """

    OPTIONS: ClassVar = {
        "definition": {"type": "dict", "required": True},
        "refusal": {"type": "str", "default": ""},
        "timeout_s": {"type": "float", "required": True},
        **KUBECONFIG,
    }

    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Ask until the answer is right."""
        return {"changed": False, "msg": self.kube.accepts(given["definition"], given["timeout_s"], given["refusal"])}
