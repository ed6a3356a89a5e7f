"""Ensure that a node of the lab has the images: its store before it starts, changed and own images afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.build.image_store import image_names, import_image, missing_images, place_store, record_images


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_images.py."""

    OPTIONS: ClassVar = {
        "folder": {"type": "path", "required": True},
        "store": {"type": "path"},
        "seen": {"type": "str", "default": ""},
        "images": {"type": "list", "elements": "dict", "default": []},
        "ctr": {"type": "list", "elements": "str", "default": []},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call."""
        folder = Path(arguments["folder"])
        if arguments["store"]:
            store = Path(arguments["store"])
            return {"changed": not folder.exists() if self.dry else place_store(store, folder, arguments["seen"])}
        missing = missing_images(folder, arguments["images"], image_names(arguments["ctr"]))
        if not self.dry:
            for image in missing:
                import_image(arguments["ctr"], Path(image["archive"]))
            record_images(folder, missing)
        return {"changed": bool(missing), "imported": [image["name"] for image in missing]}
