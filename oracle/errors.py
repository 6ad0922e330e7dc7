"""What the user can fix."""


class OracleError(Exception):
    """One line that says what is wrong and what to do."""
