"""Gangs on simulated nodes: what the parts `gangs` and `churn` share."""
