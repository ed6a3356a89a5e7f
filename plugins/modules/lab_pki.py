"""Documentation of the action lab_pki, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_pki
short_description: Ensure the lab's certificate authorities, certificates and service account key
description:
  - Keeps what is still good. Creates what is missing, does not load, expires within 30 days, has other names,
    or does not belong to its key or its authority, and reports why.
author:
  - The Gangplank authors (!UNKNOWN)
options:
  folder:
    description: Where they are; only its owner may enter it.
    type: path
    required: true
  data:
    description: Folder of etcd's data. While it exists, a broken or missing key for its Secrets is refused.
    type: path
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
  returned: always
healed:
  description: Name and reason of what existed in part and was created again.
  type: list
  returned: always
"""
