"""What Helm is told of a cluster where it has none: its own default is older than what our charts take."""

from __future__ import annotations

from gangplank.site.preflight import NEWEST

KUBERNETES = f"--kube-version={'.'.join(map(str, NEWEST))}"
