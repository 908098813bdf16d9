"""The `paddlejob` command: one module a verb. Text is made by pure functions, printed by output.py."""
