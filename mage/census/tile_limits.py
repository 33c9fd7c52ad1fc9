"""Limits of the tile model, tried out: each is a small kernel that is compiled anew, and what came of it.

The kernels lie in ``kernels/cutile/limits``, one file a limit: ``KERNEL`` is what could not be written, ``INSTEAD`` a
way around it. No GPU is needed to compile them, and none is used. The published limits are cuTile Rust's; what is
tried here is the same thing in cuTile Python, so an outcome speaks of today's cuTile and not of the published one.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mage import kernels
from mage.census import sass, tile_releases
from mage.cuda import cubins

ARCH = "sm_90"
FOLDER = "cutile/limits"

REFUSED, COMPILES, AS_CLAIMED = "still refused", "no longer true", "still true"
"""The compiler's no; it compiles; it compiles and does what the claim says it does."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """``name`` is that of its kernel file. ``published``: the published note's; else found here."""

    name: str
    claim: str
    published: bool = True


LIMITS = (
    Limit(name="power_of_two", claim="A tile's sides are powers of two; a row of 768 is refused without a reason"),
    Limit(name="loop_index", claim="A load indexed by a loop variable loads its first tile again and again"),
    Limit(name="expression", claim="A tile cannot stand inside an expression, it needs an annotation of its own"),
    Limit(name="unsigned", claim="There is no conversion from unsigned to signed integers"),
    Limit(name="comparison", claim="Scalars cannot be compared, so a walk along edges must count them"),
    Limit(name="pointer", claim="Irregular access needs raw device pointers"),
    Limit(name="run_time_shape", claim="A tile's shape cannot depend on a value known at run time", published=False),
    Limit(name="worker_warps", claim="A tile program cannot be asked to run on one warp", published=False),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a limit today: one of the three words, and the compiler's own or what its code shows.

    ``instead``: the way around, "compiles" or the compiler's words; None where the file has none.
    """

    limit: Limit
    word: str
    said: str
    instead: str | None = None
    compiler: str


def why_not() -> str | None:
    """Why nothing can be tried on this machine; None where it can."""
    return None if importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.tile") else "cuda-tile is not installed"


def outcomes(limits: Sequence[Limit] = LIMITS) -> list[Outcome]:
    """Try every limit: compile its kernel for ``ARCH`` and catch the refusal. Empty where cuTile is not installed."""
    return [] if why_not() else [_outcome(limit) for limit in limits]


def by_name(tried: Sequence[Outcome]) -> dict[str, str]:
    """What became of every limit, by its name: one of the three words, or ``not tried here``."""
    found = {one.limit.name: one.word for one in tried}
    return {limit.name: found.get(limit.name, "not tried here") for limit in LIMITS}


def summary(tried: Sequence[Outcome]) -> str:
    """How many of the published limits still stand, as a sentence."""
    published = [one for one in tried if one.limit.published]
    if not published:
        return f"None of the published limits was tried here: {why_not() or 'none was asked for'}."
    gone, cutile = sum(one.word == COMPILES for one in published), tried[0].compiler.split(",")[0]
    return f"Of the {len(published)} published limits, {gone} are {COMPILES} in {cutile} and {len(published) - gone} still stand."


def compiler() -> str:
    """cuTile and its assembler, with their versions."""
    return f"cuTile {importlib.metadata.version('cuda-tile')}, tileiras {tile_releases.installed_version()}"


def _outcome(limit: Limit) -> Outcome:
    module = kernels.load(f"{FOLDER}/{limit.name}")
    instead = None
    if hasattr(module, "INSTEAD"):
        _, refusal = _compiled(module, module.INSTEAD)
        instead = refusal or "compiles"
    cubin, refusal = _compiled(module, module.KERNEL)
    word, said = (REFUSED, refusal) if cubin is None else (COMPILES, "compiles")
    if cubin is not None and hasattr(module, "STANDS_STILL"):
        twin, _ = _compiled(module, module.STANDS_STILL)
        moving, still = _loads_in_loop(cubin), _loads_in_loop(twin) if twin else 0
        word = COMPILES if moving > still else AS_CLAIMED
        said = f"{moving} loads in the loop's code, {still} where the index stands still"
    return Outcome(limit=limit, word=word, said=said, instead=instead, compiler=compiler())


def _compiled(module, kernel) -> tuple[bytes | None, str | None]:
    """(cubin, None), or (None, the compiler's words)."""
    from cuda.tile.compilation import CallingConvention, KernelSignature, export_kernel

    arguments = [*map(_array, module.ARRAYS), *getattr(module, "CONSTANTS", ())]
    signature = KernelSignature(arguments, CallingConvention.cutile_python_v1())
    made = io.BytesIO()
    try:
        export_kernel(kernel, [signature], made, gpu_code=ARCH, output_format="cubin")
    except Exception as error:  # the compiler's own classes are private
        return None, words(error)
    return made.getvalue(), None


def words(error: Exception) -> str:
    """The first line of what the compiler said; where in which file follows there, and is another machine's affair."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return re.sub(r"\s*Unknown location\s*$", "", lines[0]) if lines else type(error).__name__


def _array(text: str):
    """``float32[2]``: a contiguous array of two dimensions, as ``ct.launch`` sees one of PyTorch's."""
    import cuda.tile as ct
    from cuda.tile.compilation import ArrayConstraint

    kind, rank = re.fullmatch(r"(\w+)\[(\d)\]", text).groups()
    return ArrayConstraint(
        dtype=getattr(ct, kind),
        ndim=int(rank),
        index_dtype=ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=(None,) * (int(rank) - 1) + (1,),
        stride_divisible_by=(4,) * (int(rank) - 1) + (1,),
        base_addr_divisible_by=16,
    )


def _loads_in_loop(cubin: bytes) -> int:
    (code,) = sass.parse(cubins.cuobjdump("-sass", cubin)).values()
    loop = code.hottest_loop()
    counted = sass.count(loop.body) if loop else {}
    return counted.get("global loads", 0) + counted.get("bulk copies", 0)
