"""The base of the actions of the lab, whose code is in a checkout alone: no other plugin imports it."""

from __future__ import annotations

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.base import LibraryAction
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.python import require

require("lab")


class LabAction(LibraryAction):
    """An action of the lab."""
