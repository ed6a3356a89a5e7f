"""Documentation of the action helm_released, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: helm_released
short_description: Check whether a Helm release is as asked
description:
  - Compares the newest revision with the chart's name and versions and with the values, as M(kubernetes.core.helm)
    does, in a fraction of its time.
  - A chart that is not a folder is never as asked, so that Helm itself looks.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors
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
    description: Folder of the chart.
    type: str
    required: true
  values:
    description: The values.
    type: dict
    default: {}
  timeout_s:
    description: Seconds to wait for a Helm of this machine that is changing the release.
    type: int
    default: 300
"""

RETURN = r"""
---
namespace:
  description: Whether the namespace exists.
  type: bool
  returned: always
pending:
  description: Secrets of revisions that an interrupted run left.
  type: list
  returned: always
as_asked:
  description: Whether the newest revision is deployed from this chart with these values.
  type: bool
  returned: always
"""
