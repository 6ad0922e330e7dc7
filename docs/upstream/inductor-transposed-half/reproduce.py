"""Inductor's code for a CPU with AVX-512 misreads a transposed half-precision tensor.

What a convolution over the sequence does: channels first, zeros in front, and back.
"""

from __future__ import annotations

import torch
from torch import Tensor


def there_and_back(x: Tensor) -> Tensor:
    """[tokens, channels] -> twice itself."""
    padded = torch.cat([x.new_zeros(x.shape[1], 3), x.t()], dim=1)
    return padded[:, 3:].t() + x


def main() -> None:
    print(f"vectors of {torch.backends.cpu.get_cpu_capability()}")
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.randn(2048, 256).to(dtype)
        for simdlen in (None, 256):
            torch._dynamo.reset()
            with torch._inductor.config.patch({"cpp.simdlen": simdlen}):
                out = torch.compile(there_and_back)(x)
            wrong = (out != 2 * x).sum().item()
            print(f"{dtype}, cpp.simdlen={simdlen}: {wrong} of {x.numel()} wrong")


if __name__ == "__main__":
    main()
