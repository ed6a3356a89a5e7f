"""Gangplank's library: how a training job becomes pods, known before they exist."""

__version__ = "0.1.0"
