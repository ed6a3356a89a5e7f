"""What writes files of this checkout: .venv, READMEs of roles, tables in docs/, the job chart's schema."""
