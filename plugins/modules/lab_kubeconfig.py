"""Add the lab's context to the user's kubeconfig, or remove it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_kubeconfig
short_description: Keep the lab's context in the user's kubeconfig
description:
  - Changes only the cluster, user and context called I(context); the current context is set only where there was none.
options:
  context: {description: Name of the context., type: str, required: true}
  admin: {description: The lab's own kubeconfig; needed to add., type: path}
  state: {description: Add it or remove it., type: str, choices: [present, absent], default: present}
author: Gangplank
"""

from pathlib import Path

from ansible.module_utils import lab_kubeconfig
from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Convert, call, report."""
    spec = {
        "context": {"type": "str", "required": True},
        "admin": {"type": "path"},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    }
    module = AnsibleModule(argument_spec=spec, required_if=[("state", "present", ["admin"])], supports_check_mode=True)
    path = lab_kubeconfig.user_file()
    admin = Path(module.params["admin"]) if module.params["state"] == "present" else None
    if module.check_mode and admin and not admin.exists():
        module.exit_json(changed=True, path=str(path))
    try:
        changed = lab_kubeconfig.ensure(path, module.params["context"], admin, dry=module.check_mode)
    except lab_kubeconfig.KubeconfigError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{path}: {error.strerror}; mend its permissions, then run it again")
    module.exit_json(changed=changed, path=str(path))


if __name__ == "__main__":
    main()
