"""Ensure the lab's certificate authorities, certificates and the service account key."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_pki
short_description: Ensure the certificates of the lab's control plane
description:
  - Keeps what is there and still good; makes what is missing, expires within 30 days, or answers to other names.
options:
  folder: {description: Where they lie, mode 0700., type: path, required: true}
  authorities: {description: Names of the CAs., type: list, elements: str, required: true}
  certificates:
    description: Leaf certificates, each with I(name), I(common_name), I(organization), I(sans) and I(ca).
    type: list
    elements: dict
    required: true
author: Gangplank
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.lab_pki import Wanted, ensure


def main() -> None:
    """Convert, call, report."""
    options = {
        "name": {"type": "str", "required": True},
        "common_name": {"type": "str", "required": True},
        "organization": {"type": "str", "default": ""},
        "sans": {"type": "list", "elements": "str", "default": []},
        "ca": {"type": "str", "default": "ca"},
    }
    spec = {
        "folder": {"type": "path", "required": True},
        "authorities": {"type": "list", "elements": "str", "required": True},
        "certificates": {"type": "list", "elements": "dict", "required": True, "options": options},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    folder = Path(module.params["folder"])
    wanted = [Wanted(**{**given, "sans": tuple(given["sans"])}) for given in module.params["certificates"]]
    if module.check_mode:
        names = [*module.params["authorities"], *(leaf.name for leaf in wanted)]
        module.exit_json(changed=any(not (folder / f"{name}.crt").exists() for name in names))
    try:
        made = ensure(folder, module.params["authorities"], wanted)
    except OSError as error:
        module.fail_json(msg=f"{folder}: {error.strerror}; free some space or mend its permissions, then run it again")
    module.exit_json(changed=bool(made), made=made)


if __name__ == "__main__":
    main()
