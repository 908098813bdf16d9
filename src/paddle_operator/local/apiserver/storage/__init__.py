"""Objects in SQLite and the recent history that watches read."""
