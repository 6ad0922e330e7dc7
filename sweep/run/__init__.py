"""One case on its machine: settings -> processes, logs, a time limit -> facts.json."""
