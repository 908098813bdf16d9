"""Keeps objects in SQLite, and the recent history that watches are served from."""
