"""Teams: one file each becomes a namespace, queues, limits, access and isolation, and nothing beyond them."""
