"""What does the runtime cost on a real API server? Numbers with their spread, each beside a ceiling or a budget."""
