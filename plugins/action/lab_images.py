"""Ensure that a node of the lab has the images: its store before it starts, a changed or a user's image after."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab.errors import PartError
from lab.store import import_image, missing_images, place_store, record_images


class ActionModule(ActionBase):
    """Arguments: folder (the node's store), store (to place where the folder is empty), images and ctr (to import)."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Convert, call, translate the error."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        spec = {
            "folder": {"type": "path", "required": True},
            "store": {"type": "path"},
            "images": {"type": "list", "elements": "dict", "default": []},
            "ctr": {"type": "list", "elements": "str", "default": []},
        }
        _, given = self.validate_argument_spec(spec)
        folder = Path(given["folder"])
        dry = self._task.check_mode
        try:
            if given["store"]:
                placed = not folder.exists() if dry else place_store(Path(given["store"]), folder)
                return result | {"changed": placed}
            missing = missing_images(folder, given["images"])
            if not dry:
                for image in missing:
                    import_image(given["ctr"], Path(image["archive"]))
                record_images(folder, missing)
        except PartError as error:
            return result | {"failed": True, "msg": str(error)}
        return result | {"changed": bool(missing), "imported": [image["name"] for image in missing]}
