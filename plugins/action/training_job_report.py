"""Judge a training by its evidence, and write the page about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.base import LibraryAction

from gangplank.proof.expected import expected
from gangplank.proof.report import page
from gangplank.proof.verdict import prove, read_records


class ActionModule(LibraryAction):
    """Documented in plugins/modules/training_job_report.py."""

    OPTIONS: ClassVar = {
        "manifest": {"type": "dict", "required": True},
        "job_uid": {"type": "str", "required": True},
        "created": {"type": "float"},
        "pods": {"type": "dict"},
        "evidence": {"type": "list", "elements": "str", "required": True},
        "page": {"type": "path", "required": True},
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        records = read_records("\n".join(args["evidence"]))
        expectation = replace(expected(args["manifest"]), job_uid=args["job_uid"] or None,
                           created=args["created"], pods=args["pods"])  # fmt: skip
        verdict = prove(records, expectation)
        target, text = Path(args["page"]), page.page(args["manifest"]["metadata"]["name"], records, expectation)
        changed = not target.is_file() or target.read_text(encoding="utf-8") != text
        if changed and not self.dry:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        lines = [*verdict.text().splitlines(), f"report: {target}"]
        alone = expectation.world_size == 1 and verdict.alone  # as the job asked: it trained, and proves nothing more
        return {"changed": changed, "passed": verdict.passed or alone, "lines": lines}
