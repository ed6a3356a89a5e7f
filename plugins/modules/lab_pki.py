"""Documentation of the action lab_pki, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_pki
short_description: Ensure the lab's certificate authorities, certificates and service account key
description:
  - Keeps what is still good. Creates what is missing, expires within 30 days, or has other names.
author:
  - The Gangplank authors
options:
  folder:
    description: Where they are; only its owner may enter it.
    type: path
    required: true
  authorities:
    description: Names of the certificate authorities.
    type: list
    elements: str
    required: true
  certificates:
    description: The certificates.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of its files.
        type: str
        required: true
      common_name:
        description: The subject's common name.
        type: str
        required: true
      organization:
        description: The subject's organization.
        type: str
        default: ''
      sans:
        description: Alternative names.
        type: list
        elements: str
        default: []
      ca:
        description: The authority that signs it.
        type: str
        default: ca
"""

RETURN = r"""
---
made:
  description: Names of what was created.
  type: list
  returned: not in check mode
"""
