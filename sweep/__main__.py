"""`python -m sweep`."""

import sys


def run() -> int:
    """The sweep's exit code, also where a Ctrl-C comes while it is imported."""
    try:
        from sweep.cli.app import main

        return main()
    except KeyboardInterrupt:
        print("sweep: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
