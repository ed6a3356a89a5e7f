"""Judge a training by its evidence, and write the page about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.base import LibraryAction

from gangplank.proof import expected as asked
from gangplank.proof.report import page
from gangplank.proof.verdict import prove, read_records


class ActionModule(LibraryAction):
    """Documented in plugins/modules/training_job_report.py."""

    OPTIONS: ClassVar = {
        "manifest": {"type": "dict", "required": True},
        "job_uid": {"type": "str", "required": True},
        "evidence": {"type": "list", "elements": "str", "required": True},
        "page": {"type": "path", "required": True},
    }

    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        records = read_records("\n".join(given["evidence"]))
        expected = replace(asked.expected(given["manifest"]), job_uid=given["job_uid"] or None)
        verdict = prove(records, expected)
        target, text = Path(given["page"]), page.page(given["manifest"]["metadata"]["name"], records, expected)
        changed = not target.is_file() or target.read_text(encoding="utf-8") != text
        if changed and not self.dry:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        lines = [*verdict.text().splitlines(), f"report: {target}"]
        return {"changed": changed, "passed": verdict.passed, "lines": lines}
