"""Look, decide, write it down, do it: one file for each kind. Nothing about Paddle is known here."""
