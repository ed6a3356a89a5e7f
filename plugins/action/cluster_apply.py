"""Ensure that objects of the cluster are as defined, many in one call: a module would start a Python for each."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import yaml
from ansible.module_utils.urls import open_url
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.charts import REGISTRY, file_in_chart
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction, title

from gangplank.errors import KubeError, Problem
from gangplank.k8s.manifest import written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangplank.spec import Json

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # some CRDs are ten thousand lines
WEB = ("http://", "https://")
ADDRESSES = (*WEB, REGISTRY)


class ActionModule(ClusterAction):
    """Documented in plugins/modules/cluster_apply.py."""

    OPTIONS: ClassVar = {
        "definition": {"type": "list", "elements": "dict", "default": []},
        "files": {"type": "list", "elements": "str", "default": []},
        "sha256": {"type": "dict", "default": {}},
        "merge": {"type": "bool", "default": False},
        "create": {"type": "bool", "default": True},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        objects = list(args["definition"])
        for text in contents(args["files"], args["sha256"], self.environment):  # all, before the first is applied
            objects += [document for document in yaml.load_all(text, LOADER) if document]
        changed, diff = False, []
        for definition in objects:
            states = self.apply(definition, merge=args["merge"], create=args["create"])
            before, after = (written(item) if item else None for item in states)
            if before != after:
                changed = True
                if definition["kind"] != "Secret":
                    texts = ["" if item is None else yaml.safe_dump(item) for item in (before, after)]
                    headers = {"before_header": title(definition), "after_header": title(definition)}
                    diff.append({"before": texts[0], "after": texts[1], **headers})
        return {"changed": changed, "diff": diff}

    def apply(self, definition: Json, *, merge: bool, create: bool) -> tuple[Json | None, Json | None]:
        """The object before and after. In check mode its kind or namespace may be one that the run would create."""
        try:
            if merge:
                return self.kube.merge(definition, dry_run=self.dry, create=create)
            return self.kube.apply(definition, dry_run=self.dry)
        except KubeError as error:
            if self.dry and error.status == 404:
                return None, definition
            raise KubeError(f"{title(definition)}: {error}", error.status) from None


def contents(files: list[str], sha256: dict[str, str], environment: Mapping[str, str]) -> list[bytes]:
    """The files' contents; KubeError names every one that has another sha256, and every address without one."""
    problems, texts = [], []
    for name in files:
        expected = sha256.get(name.rpartition("/")[2], "")
        if not expected and name.startswith(ADDRESSES):
            fix = "give the sha256 of the file as you have checked it"
            problems.append(Problem(name, "an address without a sha256", "the sha256 of its content", fix))
            continue
        texts.append(file_in_chart(name, environment) if name.startswith(REGISTRY) else content(name))
        digest = hashlib.sha256(texts[-1]).hexdigest()
        if expected and digest != expected:
            fix = "do not use this source; only if it is meant to have changed, correct the hash"
            problems.append(Problem(name, f"sha256 {digest}", expected, fix))
    if problems:
        raise KubeError("\n".join(str(problem) for problem in problems))
    return texts


def content(name: str) -> bytes:
    """The content of a file or of an http(s) address."""
    if not name.startswith(WEB):
        return Path(name).read_bytes()
    try:
        with open_url(name, timeout=60) as answer:
            text: bytes = answer.read()
    except OSError as error:
        fix = "name a folder that holds the files"
        raise KubeError(str(Problem(name, f"no answer ({error})", "a file with objects in YAML", fix))) from None
    return text
