"""Every fault that can be planted: what it breaks, how strong it can be, and where it was seen.

python -m sft.faults
python -m sweep arch=llama layout=single feature=none fault=dead_model    # plants one
"""

from __future__ import annotations

import argparse
import signal
import textwrap

from sft.faults import FAULTS

if __name__ == "__main__":
    argparse.ArgumentParser(
        prog="python -m sft.faults", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()  # fmt: skip
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a list into `head` is no error
    for fault in FAULTS.values():
        strengths = ", ".join(f"{value:g}" for value in fault.strengths)
        print(f"{fault.name}[:{fault.strength}] ({strengths})" if strengths else fault.name)
        seen = f"\nas in {', '.join(fault.seen)}" if fault.seen else ""
        print(textwrap.indent(f"{fault.breaks}{seen}", "    "))
