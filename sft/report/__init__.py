"""What a run reports of itself, one line of metrics.jsonl per step."""
