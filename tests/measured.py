"""Measured evidence made up for tests: samples a round, several variants, long names."""

from mage.evidence.schema import Evidence

SHAPES = {
    "matmul": [1024, 1024, 1024],
    "gelu": [4096, 768],
    "layernorm": [4096, 768],
    "triangle": [128, 32],
    "neighbor": [4096, 64, 65536],
}
VARIANTS = (
    ("pytorch", None),
    ("pytorch-compiled", "default"),
    ("pytorch-compiled", "max-autotune-no-cudagraphs"),
    ("triton", "fixed"),
    ("triton", "tuned"),
    ("cutile", "fixed"),
    ("cuda", "pipeline"),
)


def result(operation: str, implementation: str, variant: str | None, base: float, times: float = 1.0) -> dict:
    """One row: three rounds of four samples around ``base`` µs, one of them stalled, and two kernels a call; all ``times`` as long."""
    rounds = [[times * (base + step + 0.1 * number) for number in range(3)] + [times * (base + 60)] for step in range(3)]
    half = [[value / 4 for value in samples] for samples in rounds]
    kernel = {"grid": [1, 1, 1], "block": [128, 1, 1], "registers": 32, "shared_bytes": 0, "mode": "awaited", "cache": "warm"}
    return {
        "operation": operation,
        "dims": SHAPES[operation],
        "implementation": implementation,
        "variant": variant,
        "launches": 2,
        "spans": [{"mode": "awaited", "cache": "warm", "rounds_us": rounds}],
        "kernels": [{"name": name, "rounds_us": half, **kernel} for name in ("first", "second")],
    }


def record(times: float = 1.0, **changes) -> Evidence:
    """Evidence of seven implementations and variants of five operations on a made-up GPU, ``times`` as slow as usual."""
    results = [
        result(operation, *which, base=10.0 * (place + 1) + 3 * number, times=times)
        for place, operation in enumerate(SHAPES)
        for number, which in enumerate(VARIANTS)
    ]
    content = {
        "schema": 1,
        "experiment": "made-up-001",
        "origin": "retained",
        "when": "2026-11-30T12:00:00Z",
        "device": {"kind": "gpu", "name": "NVIDIA H200"},
        "software": {},
        "source": {"citation": "a test"},
        "inputs": {"seed": 1, "std": 0.25, "distribution": "normal"},
        "method": {
            "rounds": 3, "iterations": 4, "warmup": 1, "order": "rotates", "rtol": 1e-4, "atol": 1e-4, "tf32": False,
            "span_statistic": "samples", "kernel_statistic": "samples",
        },
        "results": results,
    }  # fmt: skip
    return Evidence.model_validate({**content, **changes})
