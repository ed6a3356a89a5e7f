"""Make objects of the cluster what they should be, many at once: a module would start a Python for each call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import yaml
from ansible.module_utils.urls import open_url
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction

from gangplank.errors import KubeError

if TYPE_CHECKING:
    from gangplank.spec import Json

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # some CRDs are ten thousand lines


class ActionModule(ClusterAction):
    """Documented in plugins/modules/cluster_apply.py."""

    OPTIONS: ClassVar = {
        "definition": {"type": "list", "elements": "dict", "default": []},
        "files": {"type": "list", "elements": "str", "default": []},
        **KUBECONFIG,
    }

    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        objects = list(given["definition"])
        for name in given["files"]:
            objects += [found for found in yaml.load_all(content(name), LOADER) if found]
        changed, shown = False, []
        for wanted in objects:
            before, after = (written(found) if found else None for found in self.apply(wanted))
            if before != after:
                changed = True
                if wanted["kind"] != "Secret":
                    texts = ["" if found is None else yaml.safe_dump(found) for found in (before, after)]
                    headers = {"before_header": title(wanted), "after_header": title(wanted)}
                    shown.append({"before": texts[0], "after": texts[1], **headers})
        return {"changed": changed, "diff": shown}

    def apply(self, wanted: Json) -> tuple[Json | None, Json]:
        """The object before and after; in a check run also where the kind or namespace is made before it only then."""
        try:
            return self.kube.apply(wanted, dry_run=self.dry)
        except KubeError as error:
            if self.dry and error.status == 404:
                return None, wanted
            raise KubeError(f"{title(wanted)}: {error}", error.status) from None


def title(item: Json) -> str:
    """What a message calls an object, which may be in no namespace."""
    return f"{item['kind']} {item['metadata']['name']}"


def content(name: str) -> bytes:
    """A file, or what is at an address."""
    if not name.startswith(("http://", "https://")):
        return Path(name).read_bytes()
    try:
        with open_url(name, timeout=60) as answer:
            found: bytes = answer.read()
    except OSError as error:
        raise KubeError(f"{name} cannot be read: {error}; name a folder with the files instead") from None
    return found


def written(found: Json) -> Json:
    """What somebody wrote of an object; not what the server and controllers note in it."""
    noted = ("managedFields", "resourceVersion", "generation")
    meta = {key: value for key, value in found["metadata"].items() if key not in noted}
    return {**{key: value for key, value in found.items() if key != "status"}, "metadata": meta}
