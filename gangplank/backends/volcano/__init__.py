"""A job as a Volcano Job: the pytorch plugin wires the ranks."""
