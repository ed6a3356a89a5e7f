"""A copy of a site's control plane on this machine, where the site's own scheduler says if a job would start."""
