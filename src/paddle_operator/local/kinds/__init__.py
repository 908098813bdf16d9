"""The closed list of kinds: what each is called, what it may say, and how it is shown."""
