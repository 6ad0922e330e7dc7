"""Packages of kernels are hidden from transformers, which would compute with them unasked."""

from __future__ import annotations

import os
import sys

PACKAGES = ("causal_conv1d", "fla", "kernels", "mamba_ssm")
"""Where one is installed, transformers takes its functions in place of its own written in torch."""


def hide_kernels(program: str) -> None:
    """Let transformers find none of them; a process that has one loaded starts `program` anew."""
    if any(sys.modules.get(name) for name in PACKAGES):
        os.execv(sys.executable, [sys.executable, "-P", "-m", program, *sys.argv[1:]])
    sys.modules.update(dict.fromkeys(PACKAGES))  # type: ignore[arg-type]  # as the import system has it
