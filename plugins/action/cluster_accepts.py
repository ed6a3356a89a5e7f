"""Wait until the cluster accepts an object, or refuses it with the words that it should; nothing is made."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gangplank.kube import KubeError
from plugins.cluster import KUBECONFIG, Asking

POLL_S = 0.5


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
        end, refusal = time.monotonic() + given["timeout_s"], given["refusal"]
        while True:
            answer = self.answer(given["definition"])
            if refusal in answer if refusal else not answer:
                return {"changed": False, "msg": answer}
            if time.monotonic() > end:
                wanted = f'the refusal "{refusal}"' if refusal else "that it is accepted"
                kind, name = given["definition"]["kind"], given["definition"]["metadata"]["name"]
                said = answer or "it was accepted"
                raise KubeError(f"{kind} {name}: expected {wanted} within {given['timeout_s']:.0f} s; last: {said}")
            time.sleep(POLL_S)

    def answer(self, definition: dict[str, Any]) -> str:
        """What the cluster says against it; one of its name that a killed run left is no answer of a webhook's."""
        try:
            self.kube.create(definition, dry_run=True)
        except KubeError as error:
            return "" if error.status == 409 else str(error)
        return ""
