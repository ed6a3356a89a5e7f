"""A job file becomes a checked JobSpec."""
