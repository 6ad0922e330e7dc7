"""`python -m sweep`."""

import sys

from sweep.app import main

if __name__ == "__main__":
    sys.exit(main())
