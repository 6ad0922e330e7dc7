"""Cases at other commits of a trainer's repository, and with other releases of what it imports."""
