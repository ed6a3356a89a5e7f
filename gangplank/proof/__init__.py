"""Evidence becomes a verdict; pure."""
