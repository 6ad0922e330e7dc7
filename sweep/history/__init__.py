"""Every case over the nights: since when it is as it is, what moved, how near its thresholds."""
