"""Documentation of the action cluster_lock, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: cluster_lock
short_description: Hold a cluster, or one of its jobs, for this run of ansible-playbook
description:
  - A second run names who holds it and since when, and waits. A run that holds a job also waits while another run
    changes the cluster.
  - The lock is a Lease in the cluster, C(gangplank) in the namespace V(default), or that of a job in the job's
    namespace. A process beside the run renews it, and removes it when the run has ended in any way.
  - A process of this machine that has ended holds nothing, unless a task that it started still runs. One elsewhere does
    for a minute longer.
  - An account that may not write Leases takes no lock. The run says so and continues.
  - In check mode nothing is locked. To take or to free a lock is not a change.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  job:
    description: The job that is run. Without it, the lock is that of the whole cluster, which
      M(gangplank.gangplank.cluster_ready) takes too.
    type: str
    default: ""
  namespace:
    description: The job's namespace.
    type: str
    default: ""
  state:
    description: Whether the lock is to be held or freed.
    type: str
    choices: [held, free]
    default: held
  timeout_s:
    description: Seconds to wait for another run. Without it, 900.
    type: int
"""

EXAMPLES = r"""
---
- name: Ensure that no other run changes this job meanwhile
  gangplank.gangplank.cluster_lock:
    job: digits
    namespace: vision
"""

RETURN = ""
