"""What people touch: `paddlejob run`, `get`, `logs`, … One file a verb; what is printed is made by pure functions."""
