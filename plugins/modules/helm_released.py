"""Documentation of the action helm_released, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: helm_released
short_description: Check whether a Helm release is as asked, and repair its objects
description:
  - Compares the newest revision with the chart's name, versions and content and with the values, in a fraction of the
    time that M(kubernetes.core.helm) takes, which does not compare the content.
  - If Helm has nothing to do, every object of the release that is missing or changed is applied again. Helm itself does
    not look at them.
  - A chart that is neither a folder nor an archive on this machine is never as asked, so that Helm itself looks.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  name:
    description: The release.
    type: str
    required: true
  namespace:
    description: Its namespace.
    type: str
    required: true
  chart:
    description: Folder or archive of the chart; "" only looks at the state of the release.
    type: str
    required: true
  values:
    description: The values.
    type: dict
    default: {}
  installed:
    description:
      - Whether Helm has just installed this chart. Then its content is noted with the revision, and the objects are
        repaired whatever the chart's source is.
    type: bool
    default: false
  ended:
    description:
      - Whether Helm has just ended by itself. A revision that is pending is then another Helm's. This is noted on this
        machine, and nothing else is done.
    type: bool
    default: false
  timeout_s:
    description:
      - Seconds to wait for a Helm that is changing the release, on this machine or elsewhere.
      - A pending revision that is older than this, and than ten minutes, counts as left behind. So does one that an
        interrupted Helm of this machine left.
    type: int
    default: 300
"""

EXAMPLES = r"""
---
- name: Look for the release, and for what an interrupted run left of it
  gangplank.gangplank.helm_released:
    name: volcano
    namespace: volcano-system
    chart: /opt/site/charts/volcano
  register: release
"""

RETURN = r"""
---
third_party:
  description: The refusal of a third-party release under a default name; C("") of any other.
  type: str
  returned: always
namespace:
  description: Whether the namespace exists.
  type: bool
  returned: always
pending:
  description: Secrets of revisions that an interrupted Helm left.
  type: list
  returned: always
uninstalling:
  description: Whether an interrupted run has left the release half removed.
  type: bool
  returned: always
as_asked:
  description: Whether the newest revision is deployed from this content of the chart with these values.
  type: bool
  returned: always
again:
  description:
    - Whether Helm has to upgrade because the last attempt failed, or to a chart of the same name, version and values
      because its content is another. M(kubernetes.core.helm) sees no reason to.
  type: bool
  returned: always
unkept:
  description:
    - The CRDs in the manifest of the newest complete revision that Helm would remove with it, with all their objects.
    - Each is a patch with the annotation by which an upgrade leaves it.
  type: list
  returned: always
environment:
  description: The variables with which the program helm takes the same cluster.
  type: dict
  returned: always
deployments:
  description: Paths of the Deployments that were repaired.
  type: list
  returned: always
"""
