"""python benchmarks/oracle_share.py outputs/SWEEP: the share of a sweep's CPU that is the oracle's.

By the facts of its cases: CPU-seconds of the trainers' launches, of the oracle's answers that were
not kept from before, and of its looks at exported checkpoints. Start the sweep with an empty
SWEEP_CACHE to count every answer.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Print a row a case, and the shares of the whole."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweep", type=Path, help="a sweep's folder")
    paths = sorted(parser.parse_args().sweep.glob("*/facts.json"))
    if not paths:
        sys.exit("no case has facts there; name a sweep's folder, as outputs/SWEEP")
    totals = dict.fromkeys(("launches", "oracle", "export"), 0.0)
    for path in paths:
        used = of_case(json.loads(path.read_text(encoding="utf-8")))
        print(f"{path.parent.name:40}", *(f"{name} {x:6.1f}" for name, x in used.items()))
        totals = {name: totals[name] + x for name, x in used.items()}
    whole = sum(totals.values())
    for name, seconds in totals.items():
        print(f"{name}: {seconds:.0f} CPU-seconds, {seconds / whole:.1%}")


def of_case(facts: dict[str, Any]) -> dict[str, float]:
    """CPU-seconds by what took them."""
    oracle, export = facts.get("oracle") or {}, facts.get("export") or {}
    return {
        "launches": sum(launch["cpu_seconds"] or 0.0 for launch in facts["launches"]),
        "oracle": 0.0 if oracle.get("is_cached") else oracle.get("cpu_seconds") or 0.0,
        "export": export.get("cpu_seconds") or 0.0,
    }


if __name__ == "__main__":
    main()
