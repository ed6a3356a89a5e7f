"""A training as one page of HTML, or as TensorBoard's files."""
