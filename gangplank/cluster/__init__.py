"""The room that talks to an API server; teams and the command line borrow its client."""
