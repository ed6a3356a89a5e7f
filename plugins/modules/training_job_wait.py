"""Documentation of the action training_job_wait, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: training_job_wait
short_description: Wait for a submitted training job and return the evidence of its ranks
description:
  - Shows progress. Where the workers' pods and logs are gone, the evidence is what rank 0 left on the job's claim.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  manifest:
    description: The job's manifest.
    type: dict
    required: true
  world_size:
    description: Number of ranks.
    type: int
    required: true
  timeout_s:
    description: Seconds to wait for the job's end. The task fails then, and the job continues.
    type: float
    required: true
"""

EXAMPLES = r"""
---
- name: Follow a job to its end
  gangplank.gangplank.training_job_wait:
    manifest: "{{ expanded.manifests[-1] }}"
    world_size: 3
    timeout_s: 86400
  register: waited
"""

RETURN = r"""
---
rows:
  description: What each rank did.
  type: list
  returned: always
table:
  description: The same as lines of text.
  type: list
  returned: always
evidence:
  description: Records of the ranks, as lines of JSON.
  type: list
  returned: always
job_uid:
  description: The job's UID, which its evidence carries.
  type: str
  returned: always
uid:
  description: The UID of the job itself.
  type: str
  returned: always
created:
  description: When the API server got the job, in seconds since 1970.
  type: float
  returned: always
pods:
  description: The node of every pod of the job that was seen, by the pod's UID.
  type: dict
  returned: always
"""
