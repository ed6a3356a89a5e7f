"""Documentation of the action training_job_expand, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: training_job_expand
short_description: Read a training job and expand it into manifests
description:
  - Applies the defaults of the job's team and the settings of the site. Every problem of a job is reported
    in one message that names its file.
  - Asks no cluster and changes nothing.
author:
  - The Gangplank authors (!UNKNOWN)
options:
  job:
    description: 'The job: the mapping C(training_job) of a file of C(jobs/).'
    type: raw
    required: true
  teams:
    description: The inventory's group whose hosts are the site's teams; the empty string means no teams.
    type: str
    default: ''
  gpu_taints:
    description: Taints of the site's GPU nodes.
    type: list
    elements: dict
    default: []
  simulated_gpus:
    description: Whether the site's GPUs are simulated.
    type: bool
    default: false
  gpu_allocation:
    description: How the site gives out GPUs, by a device plugin or by claim (Dynamic Resource Allocation).
    type: str
    choices: [device-plugin, dra]
    default: device-plugin
  gpu_device_class:
    description: DeviceClass from which pods claim GPUs, if O(gpu_allocation=dra).
    type: str
    default: gpu.nvidia.com
  pull_secrets:
    description: Secrets with which the nodes pull the image of a job that names none.
    type: list
    elements: str
    default: []
  explain:
    description: Return RV(explained) too.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: Make the manifests of a job
  gangplank.gangplank.training_job_expand:
    job:
      name: digits
      image: registry.example.org/trainer:0.1.0
      workers: 2
  register: expanded
"""

RETURN = r"""
---
job:
  description: The job with all defaults, its size, and its pods in the order of their ranks.
  type: dict
  returned: always
manifests:
  description: What is submitted, the job last.
  type: list
  returned: always
explained:
  description: The manifests as lines, with what controllers will add, by whom and why.
  type: dict
  returned: always
"""
