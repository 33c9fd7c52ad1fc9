"""Who fetches a tile: the compiler may leave it to the tensor memory accelerator (TMA) or to the threads that use it.

TMA comes with warps that do nothing but fetch, and with a block that may take every register of a thread. What that costs
is seen in compiled code: the published configuration of every cuTile kernel beside the one that a search chose on a GPU.
No GPU is needed to compile them; of times there are none here.
"""

from __future__ import annotations

import importlib.util
import io

from mage import configurations, cubins, describe, kernels, offline, operations, tile_limits, tuned
from mage.offline import Compiled, Job

DEVICE, ARCH = "NVIDIA H200", "sm_90"
"""Whose tuned configurations are compiled, and for what."""
FIXED, CHOSEN = "published", "chosen by search"


def rows(names: list[str] | None = None) -> list[dict]:
    """Of every operation its fixed configuration, then the chosen one where there is one; [] where cuTile is not installed.

    ``operation``, ``which``, ``config``, and the columns of ``mage.describe``.
    """
    if tile_limits.why_not() or importlib.util.find_spec("triton") is None:
        return []
    found = []
    for name in names if names is not None else operations.names():
        module = kernels.load(f"cutile/{name}")
        chosen = tuned.config(name, "cutile", DEVICE)
        for which, config in ((FIXED, module.FIXED), (CHOSEN, chosen)):
            if config is not None:
                config = configurations.whole(module, config)
                found.append({"operation": name, "which": which, "config": config, **describe.row(compiled(name, config))})
    return found


def summary(found: list[dict]) -> str:
    """Which published configurations leave fetching to TMA, and what became of that in the chosen ones, as a sentence."""
    if not found:
        return f"Nothing was compiled here: {tile_limits.why_not() or 'no operation was asked for'}."
    fixed, chosen = ([row for row in found if row["which"] == which] for which in (FIXED, CHOSEN))
    by_tma = [row for row in fixed if row["bulk copies"]]
    names = " and ".join(row["operation"] for row in by_tma) or "none"
    full = sum(row["blocks per SM"] == 1 for row in by_tma)
    left = sum(bool(row["bulk copies"]) for row in chosen)
    return (
        f"Of {len(fixed)} published configurations {len(by_tma)} are fetched by TMA ({names}), and {full} of these fill a multiprocessor "
        f"with one block. Of {len(chosen)} chosen by search {left or 'none'} {'are' if left != 1 else 'is'} fetched that way."
    )


def compiled(name: str, config: dict, arch: str = ARCH) -> Compiled:
    """One configuration, hints and all, compiled for ``arch`` as it is launched at the operation's own shape."""
    from cuda.tile.compilation import export_kernel

    module, operation = kernels.load(f"cutile/{name}"), operations.get(name)
    kernel, dims = configurations.tile_kernel(module, config), operation.default_dims
    signature = offline.tile_signature(module, operation, dims, config)
    signature = signature.with_mangled_symbol(configurations.function_name(kernel))
    made = io.BytesIO()
    export_kernel(kernel, [signature], made, gpu_code=arch, output_format="cubin")
    return Compiled(
        job=Job(operation=name, implementation="cutile", variant="fixed", arch=arch, config=dict(config)),
        dims=dims,
        kernel=signature.symbol,
        grid=module.grid(dims, config),
        threads=cubins.threads(made.getvalue()),
        compiler=tile_limits.compiler(),
        cubin=made.getvalue(),
    )
