"""`python -m tiny_models`."""

from __future__ import annotations

import signal
import sys

from .cli import main

if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `list | head` is no error
    sys.exit(main(sys.argv[1:]))
