"""torchrun --nproc-per-node N -m sft CONFIG.json"""

from __future__ import annotations

import argparse
import faulthandler
import signal
import sys
from pathlib import Path

from sft import check, config
from sft.errors import ConfigError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="sft",
        description="Fine-tune a transformers checkpoint on chat documents.",
        epilog="example: torchrun --nproc-per-node 4 -m sft config.json",
    )
    parser.add_argument(
        "config", type=Path, nargs="?", help="JSON file, see sft/config.py for its keys"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="do not train: say what would be refused of a JSON list of configs, from standard"
        " input without a file (sft/check.py)",
    )
    arguments = parser.parse_args()
    if arguments.config is None and not arguments.check:
        parser.error("name a JSON file to train as it says")
    faulthandler.register(signal.SIGUSR1)  # whoever started us can ask where we hang
    try:
        if arguments.check:
            check.main(arguments.config or Path("/dev/stdin"))
        else:
            run(arguments.config)
    except ConfigError as error:
        print(f"sft: {error}", file=sys.stderr)
        return 2
    return 0


def run(path: Path) -> None:
    """Train as a configuration file says; a failure is written where torchrun looks for it."""
    from torch.distributed.elastic.multiprocessing.errors import record  # slow to import

    @record
    def recorded() -> None:
        settings = config.load(path)

        from sft.loop import Trainer
        from sft.ranks import joined

        with joined(settings.layout) as ranks:
            if settings.fault is not None:
                from sft.faults import plant  # nothing of it is there otherwise

                plant(settings, ranks)
            Trainer(settings, ranks).run()

    recorded()


if __name__ == "__main__":
    sys.exit(main())
