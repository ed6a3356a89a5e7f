"""What `make bench` measures, a module each: `make bench` lists them."""
