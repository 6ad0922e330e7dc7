"""Words from the person who types a command, and words back."""
