"""Ensure that the lab's nodes have the images: their stores before they start, changed and own images afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.build.image_store import image_names, import_image, missing_images, place_store, record_images
from lab.host.namespaces import enter


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_images.py."""

    OPTIONS: ClassVar = {
        "stores": {"type": "dict", "required": True},
        "prepared": {"type": "path"},
        "seen": {"type": "str", "default": ""},
        "images": {"type": "list", "elements": "dict", "default": []},
        "commands": {"type": "str", "default": ""},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call, for all nodes at once."""
        nodes = {node: Path(folder) for node, folder in arguments["stores"].items()}
        with ThreadPoolExecutor() as pool:
            if arguments["prepared"]:
                place = partial(self.place, Path(arguments["prepared"]), arguments["seen"])
                return {"changed": any(list(pool.map(place, nodes.values())))}
            update = partial(self.update, arguments["images"], arguments["commands"])
            imported = dict(zip(nodes, pool.map(update, nodes, nodes.values()), strict=True))
        return {"changed": any(imported.values()), "imported": imported}

    def place(self, prepared: Path, seen: str, folder: Path) -> bool:
        """Give a node its store; return whether it had none."""
        return not folder.exists() if self.dry else place_store(prepared, folder, seen)

    def update(self, images: list[dict[str, str]], commands: str, node: str, folder: Path) -> list[str]:
        """Import what a node lacks; return the names."""
        ctr = [*enter(node), f"{commands}/ctr", "-n", "k8s.io"]
        missing = missing_images(folder, images, image_names(ctr))
        if missing and not self.dry:
            for image in missing:
                import_image(ctr, Path(image["archive"]))
            record_images(folder, missing)
        return [image["name"] for image in missing]
