"""Judge a training by its evidence, and write the page about it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.base import LibraryAction

from gangplank.errors import Problem
from gangplank.proof.expected import expected
from gangplank.proof.report import page
from gangplank.proof.verdict import prove, read_records
from gangplank.reading.files import write


def earlier_pods(file: Path, uid: str) -> dict[str, str]:
    """The pods that earlier runs saw of this very job; the cluster removes some once a job has ended."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return dict(content["pods"]) if content["uid"] == uid else {}
    except (OSError, ValueError, LookupError, TypeError):  # none yet, or not ours
        return {}


class ActionModule(LibraryAction):
    """Documented in plugins/modules/training_job_report.py."""

    OPTIONS: ClassVar = {
        "manifest": {"type": "dict", "required": True},
        "job_uid": {"type": "str", "required": True},
        "uid": {"type": "str"},
        "created": {"type": "float"},
        "pods": {"type": "dict"},
        "evidence": {"type": "list", "elements": "str", "required": True},
        "page": {"type": "path", "required": True},
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        records = read_records("\n".join(args["evidence"]))
        target = Path(args["page"])
        seen = target.with_suffix(".pods.json")
        pods = args["pods"]
        if args["uid"] and pods is not None:
            pods = earlier_pods(seen, args["uid"]) | pods
        job_uid = args["job_uid"] or None
        expectation = replace(expected(args["manifest"]), job_uid=job_uid, created=args["created"], pods=pods)
        verdict = prove(records, expectation)
        texts = {target: page.page(args["manifest"]["metadata"]["name"], records, expectation)}
        if args["uid"] and pods:
            texts[seen] = json.dumps({"uid": args["uid"], "pods": pods}, indent=1, sort_keys=True)
        lines, unwritten = verdict.text().splitlines(), {}
        stale = list[Path]()
        try:
            stale += [path for path, text in texts.items() if not path.is_file() or path.read_bytes() != text.encode()]
            for path in [] if self.dry else stale:
                path.parent.mkdir(parents=True, exist_ok=True)
                write(path, texts[path])
        except OSError as error:  # hours after the start: the verdict counts more than its page
            got, fix = error.strerror or str(error), "set training_job_report_folder to another one"
            unwritten = {"warnings": [str(Problem(f"report {target}", got, "a folder that can be written", fix))]}
        else:
            lines.append(f"report: {target}")
        alone = expectation.world_size == 1 and verdict.alone  # as the job asked: it trained, and proves nothing more
        silent = bool(verdict.unclaimed) and not verdict.failed  # what was seen is right; lines name the rest
        passed = verdict.passed or alone or silent
        return {"changed": bool(stale) and not unwritten, "passed": passed, "lines": lines, **unwritten}
