"""What writes files of this checkout: .venv, READMEs of roles, the job chart's schema."""
