"""What a launch's logs say: the root cause of a failure, and what the compiler did."""
