"""What the compiler did in a launch, by its own log; and where it keeps what it compiled."""
