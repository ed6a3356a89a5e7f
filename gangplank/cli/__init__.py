"""The gangplank command."""
