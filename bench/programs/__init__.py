"""The measured processes and those that generate their load; each runs as a separate program."""
