"""python -m sft.faults: every fault, what it breaks, and how strong it can be."""

from __future__ import annotations

import textwrap

from sft.faults import FAULTS

if __name__ == "__main__":
    for fault in FAULTS.values():
        strengths = ", ".join(f"{value:g}" for value in fault.strengths)
        print(f"{fault.name}[:{fault.strength}] ({strengths})" if strengths else fault.name)
        print(textwrap.indent(f"{fault.breaks}\nas in {', '.join(fault.seen)}", "    "))
