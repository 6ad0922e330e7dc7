"""`python -m sweep`."""

import sys

from sweep.errors import RequestError


def run() -> int:
    """The sweep's exit code, also where a Ctrl-C comes while it is imported."""
    try:
        from sweep.cli.app import main  # also loads adapters of other distributions

        return main()
    except RequestError as error:
        print(f"sweep: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sweep: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
