"""Strict FP32: what every operation is computed and compared in."""

from __future__ import annotations

import contextlib


@contextlib.contextmanager
def strict_fp32():
    """No gradients and, for as long as it lasts, no TF32 in matrix products."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_float32_matmul_precision(before)
