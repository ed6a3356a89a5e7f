"""How fast it is, beside peers and floors: `make bench`."""
