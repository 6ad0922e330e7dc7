"""What needs the hub: comparing the published configurations, and the published tokenizers."""
