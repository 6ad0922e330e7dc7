"""What a case is: its labels, its settings within bounds, its files, and the machine it runs on."""
