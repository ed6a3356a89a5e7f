"""What the lab is made of: pins, and the code that builds them into the user's cache."""
