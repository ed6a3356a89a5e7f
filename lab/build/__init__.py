"""What is made in the user's cache: `python -m lab.build`."""
