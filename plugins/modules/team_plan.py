"""Documentation of the action team_plan, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: team_plan
short_description: Compare a site's teams with the cluster
description:
  - Changes nothing; check mode reports what would change.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  group:
    description: The inventory's group whose hosts are the teams; those outside of C(--limit) are checked too.
    type: str
    required: true
  limit:
    description: Hosts of the play. Only teams among them are changed; all, if every team is among them.
    type: list
    elements: str
  remove:
    description: Teams to remove.
    type: list
    elements: str
    default: []
  remove_claims:
    description: Volume claims of removed teams to delete with all that is on them, as C(namespace/name).
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
---
- name: Plan what the teams of the inventory need
  gangplank.gangplank.team_plan:
    group: teams
  register: plan
"""

RETURN = r"""
---
remove:
  description: Objects to remove before the steps.
  type: list
  returned: always
remove_last:
  description: Queues to remove once the steps have moved their children to other parents.
  type: list
  returned: always
steps:
  description: What to apply, in order, each with name and objects.
  type: list
  returned: always
notes:
  description: What the person should know before.
  type: list
  returned: always
differences:
  description: What would change, a line each.
  type: list
  returned: always
probes:
  description: Objects that the admission must refuse in a dry run before new members get access; one of each kind.
  type: list
  returned: always
"""
