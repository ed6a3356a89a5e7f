"""A job as an Indexed Job and a headless Service: no operator."""
