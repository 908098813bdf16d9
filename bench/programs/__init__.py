"""The processes that are measured, and those that give them something to do: each is run as a program of its own."""
