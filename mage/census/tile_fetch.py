"""Who copies a tile to a multiprocessor: the tensor memory accelerator (TMA), or the threads that compute with it.

The cuTile compiler decides. Where it takes TMA it adds warps to a block that do nothing but ask for tiles, and it may give
each thread up to 255 registers, so that one block can fill a multiprocessor. Both are read from compiled code: the published
configuration of every cuTile kernel beside the one that a search chose on ``DEVICE``. Compiling needs no GPU, and nothing is
timed.
"""

from __future__ import annotations

import importlib.util
import io

from mage import kernels, operations
from mage.census import describe, offline, tile_limits
from mage.census.offline import Compiled, Job
from mage.cuda import cubins
from mage.kernels import configurations, tuned

DEVICE, ARCH = "NVIDIA H200", "sm_90"
"""The GPU whose chosen configurations are compiled, and the architecture that all are compiled for."""
FIXED, CHOSEN = "published", "chosen by search"


def rows(names: list[str] | None = None) -> list[dict]:
    """A row for the published configuration of each operation (None: of all), and one for the chosen one if a search chose any.

    A row has ``operation``, ``which`` (``FIXED`` or ``CHOSEN``), ``config`` and the columns of ``mage.census.describe``. There is
    none where cuTile cannot compile here or Triton, whose cuobjdump reads the code, is not installed. RequestError for
    an unknown operation.
    """
    if why_not():
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
    """Of ``rows``, as sentences: how many published configurations have TMA copies in their code, and how many chosen ones.

    Copies to and from a multiprocessor count alike. Where there are no rows it says why, and of chosen ones nothing where there are none.
    """
    if not found:
        return f"Nothing was compiled here: {why_not() or 'no operation was asked for'}."
    fixed, chosen = ([row for row in found if row["which"] == which] for which in (FIXED, CHOSEN))
    by_tma = [row for row in fixed if row["bulk copies"]]
    said = f"TMA copies are in the code of {_of(by_tma, fixed)} published {_configurations(fixed)}"
    if by_tma:
        alone = [row for row in by_tma if row["blocks per SM"] == 1]
        names = " and ".join(row["operation"] for row in by_tma)
        said += f" ({names}). One block fills a multiprocessor in {len(alone) or 'none'} of them"
    if chosen:
        left = [row for row in chosen if row["bulk copies"]]
        said += f". TMA copies are in the code of {_of(left, chosen)} {_configurations(chosen)} that a search chose on an {DEVICE}"
    return f"{said}."


def _of(some: list, every: list) -> str:
    return f"{len(some) or 'none'} of {len(every)}"


def _configurations(every: list) -> str:
    return "configuration" if len(every) == 1 else "configurations"


def why_not() -> str | None:
    """Why no kernel can be compiled and read here, or None."""
    if importlib.util.find_spec("triton") is None:
        return tile_limits.why_not() or "triton, whose cuobjdump reads the code, is not installed"
    return tile_limits.why_not()


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
