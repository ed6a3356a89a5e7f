"""Documentation of the action training_job_report, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: training_job_report
short_description: Judge a training by its evidence, and write a page about it
description:
  - Writes the page, and the list of the job's pods beside it, only if they differ.
author:
  - The Gangplank authors (!UNKNOWN)
options:
  manifest:
    description: The job's manifest.
    type: dict
    required: true
  job_uid:
    description: The UID that the job's evidence carries.
    type: str
    required: true
  uid:
    description:
      - The UID of the job itself. With it, the pods are kept beside the page, in a file that ends with C(.pods.json).
      - A later run then also knows the pods that the cluster has removed since.
    type: str
  created:
    description: When the API server got the job, in seconds since 1970. No record may be older.
    type: float
  pods:
    description: The node of every pod of the job, by the pod's UID. Without it, the ranks' pods are not asked for.
    type: dict
  evidence:
    description: Records of the ranks, as lines of JSON.
    type: list
    elements: str
    required: true
  page:
    description: The HTML file to write.
    type: path
    required: true
"""

EXAMPLES = r"""
---
- name: Check the evidence and write the report
  gangplank.gangplank.training_job_report:
    manifest: "{{ expanded.manifests[-1] }}"
    job_uid: "{{ waited.job_uid }}"
    evidence: "{{ waited.evidence }}"
    page: reports/default.digits.html
"""

RETURN = r"""
---
passed:
  description: Whether every claim holds that a job of this size can meet. A job of one rank is not distributed.
  type: bool
  returned: always
lines:
  description: The claims with their numbers, and where the page is.
  type: list
  returned: always
"""
