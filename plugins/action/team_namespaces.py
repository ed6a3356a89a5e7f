"""Create the namespaces of new teams; one that another user created since the plan is refused and stays as it is."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction

from gangplank.errors import KubeError
from gangplank.teams.namespaces import create


class ActionModule(ClusterAction):
    """Documented in plugins/modules/team_namespaces.py."""

    OPTIONS: ClassVar = {"definition": {"type": "list", "elements": "dict", "required": True}, **KUBECONFIG}

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        created, refused = create(self.kube, args["definition"])
        if refused:
            raise KubeError("\n".join(refused))
        return {"changed": bool(created)}
