"""A job as a PyTorchJob of the training operator v1."""
