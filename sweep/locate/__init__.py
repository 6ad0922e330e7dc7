"""Where a failed case and what it is compared with part first: docs/locate.md."""
