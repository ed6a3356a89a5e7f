"""Whether a request would leave this machine for an address of the lab, which no real network routes.

A kubeconfig may name a lab that does not run, after a reboot for example. Its addresses are of the range for benchmarks
(RFC 2544). Without the lab's link, they lead to the default gateway, and with them a client certificate's name.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

BENCHMARK = ip_network("198.18.0.0/15")
DISCARD = 9  # a port; nothing is sent to it


def of_lab(server: str) -> bool:
    """Whether a server's address is of that range.

    >>> of_lab("https://198.18.0.1:6443"), of_lab("https://127.0.0.1:6443"), of_lab("https://api.example.org")
    (True, False, False)
    """
    try:
        return ip_address(urlsplit(server).hostname or "") in BENCHMARK
    except ValueError:
        return False


def leaves(server: str) -> bool:
    """Whether a server's address is of that range, and no link of this machine is. Sends no packet.

    >>> leaves("https://127.0.0.1:6443"), leaves("https://api.example.org"), leaves("https://[::1]:6443")
    (False, False, False)
    """
    if not of_lab(server):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((urlsplit(server).hostname, DISCARD))  # of UDP: the kernel only chooses the route
        except OSError:
            return True
        return ip_address(probe.getsockname()[0]) not in BENCHMARK
