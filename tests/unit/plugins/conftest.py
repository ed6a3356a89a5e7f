"""Plugins import one another by the name of their collection, as Ansible finds it."""

from __future__ import annotations

from pathlib import Path

from ansible.plugins.loader import init_plugin_loader

init_plugin_loader([str(Path(__file__).resolve().parents[3] / ".collections")])
