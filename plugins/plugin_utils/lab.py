"""The base of the lab's actions. Their code exists only in a checkout, so no other plugin imports it."""

from __future__ import annotations

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.base import LibraryAction
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.python import require

require("lab")


class LabAction(LibraryAction):
    """An action of the lab."""
