"""`python -m tests.support.foreign up FOLDER`, or `down`: kubeadm's cluster, all of whose state is below the folder.

`up` prints the path of an administrator's kubeconfig.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lab.build.parts import build
from lab.errors import PartError
from tests.support.foreign.cluster import Cluster, ForeignError

PARTS = ["pause", "cni-plugins", "etcd", "coredns", "helm", "local-path-provisioner", "busybox"]
TRAINED = ["volcano", "training-operator", "trainer-v2", "volcano-before", "trainer"]
"""What the route installs and trains with; a real site's nodes would pull these images."""


def main(words: list[str]) -> int:
    """Make the cluster, or remove it."""
    verb, folder = words
    os.umask(0o022)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        if verb == "down":
            Cluster(Path(folder), {}, say).remove()
        else:
            parts = build([*PARTS, "kubeadm", *TRAINED], say)
            parts["bin"] |= build(["containerd"], say)["bin"]  # alone, as it would prepare a store of all images
            print(Cluster(Path(folder), parts, say).make())
    except (ForeignError, PartError) as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
