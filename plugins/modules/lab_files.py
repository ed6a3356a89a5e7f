"""Write all files of one host of the lab in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_files
short_description: Write many small files in one call
description:
  - Writes each file beside and renames it, only where content or mode differ; makes missing folders.
  - The lab's nodes have about ten files each; one call for all takes as long as one copy task.
options:
  files:
    description: A list of I(path), I(mode) and either I(content) or I(copy) (a path on this host).
    type: list
    elements: dict
    required: true
    suboptions:
      path: {description: Absolute path., type: path, required: true}
      mode:
        description: Octal mode; content is kept out of diffs unless others may read it.
        type: str
        default: '0644'
      content: {description: The text., type: str}
      copy: {description: The file to copy., type: path}
author: Gangplank
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.lab_write import write


def main() -> None:
    """Compare, then write what differs."""
    options = {
        "path": {"type": "path", "required": True},
        "mode": {"type": "str", "default": "0644"},
        "content": {"type": "str", "no_log": False},
        "copy": {"type": "path"},
    }
    spec = {"files": {"type": "list", "elements": "dict", "required": True, "options": options}}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    diffs, written = [], []
    for entry in module.params["files"]:
        path, mode = Path(entry["path"]), int(entry["mode"], 8)
        try:
            if entry["copy"]:
                source = Path(entry["copy"])
                if module.check_mode and not source.exists():
                    continue  # an earlier task of this very run would have made it
                data = source.read_bytes()
            else:
                data = entry["content"].encode()
            old = path.read_bytes() if path.exists() else None
            if old == data and path.stat().st_mode & 0o7777 == mode:
                continue
            written.append(str(path))
            if mode & 0o004:
                before = (old or b"").decode(errors="replace")
                after = data.decode(errors="replace")
                diffs.append({"before": before, "after": after, "before_header": str(path), "after_header": str(path)})
            if not module.check_mode:
                path.parent.mkdir(parents=True, exist_ok=True)
                write(path, data, mode)
        except OSError as error:
            cure = "free some space or mend its permissions, then run it again"
            module.fail_json(msg=f"{path}: {error.strerror}; {cure}")
    module.exit_json(changed=bool(written), written=written, diff=diffs)


if __name__ == "__main__":
    main()
