"""``python -m mage census`` and ``python -m mage tile-compilers``: the census on a terminal."""

from __future__ import annotations

import json
from pathlib import Path

from mage.census import baseline, counting, offline, tile_census, tile_releases
from mage.errors import MageError, RequestError


def census(operations: list[str], archs: list[str], file: str | None, renew: bool) -> int:
    """Print the tables, write the rows to ``file`` as JSON, or write the baseline anew."""
    if renew:
        if operations or archs:
            raise RequestError("--renew writes the baseline of every kernel: leave out the operations and --gpu")
        for written in baseline.renew():
            print(written)
        return 0
    archs = archs or list(counting.ARCHS)
    ways = (offline.NO_ALIGNMENT, offline.AS_LAUNCHED)
    frame = counting.count_code(operations or None, None, archs)
    has_norm = "layernorm" in set(frame.operation)
    norm = counting.count_code("layernorm", ("triton", "cuda"), archs, specializations=ways) if has_norm else None
    if file:
        Path(file).write_text(json.dumps(json.loads(frame.to_json(orient="records")), ensure_ascii=False, indent=1) + "\n")
    from mage import tables

    for arch in archs:
        shown = frame[frame.gpu == arch]
        for view in (tables.code_census(shown), tables.access_census(shown)):
            print(f"{arch}. {_narrow(view)}\n")
    if norm is not None:
        view = tables.norm_census(norm)
        view.units.clear()
        print(f"{view}\n")
    print("Registers, stack and local memory are a thread's, shared memory is a block's, in bytes. Accesses are count × bits.")
    print(tables.code_census(frame).note)
    print(tables.access_census(frame).note)
    print(f"Compilers: {', '.join(sorted(set(frame.compiler.dropna())))}.")
    return 0


def _narrow(view) -> str:
    """The table as text for a terminal: units are said once below, the GPU before its caption."""
    view.frame = view.frame.drop(columns="GPU")
    view.units.clear()
    return str(view)


def tile_compilers(retain: bool) -> int:
    """Install the other releases of tileiras apart, and count what they make of cuTile's matmul."""
    new = tile_releases.install()
    for release in tile_releases.PACKAGES:
        print(f"tileiras {release}: {'installed in' if release in new else 'is there already,'} {tile_releases.folder() / release}")
    if retain:
        print(tile_census.retain())
        return 0
    print("Compiling the matrix product with every release: once, some minutes", flush=True)
    frame = tile_census.census()
    if refused := frame.refused.dropna().unique().tolist():
        raise MageError(f"a release could not be used: {refused[0]}")
    print(f"{len(frame)} kernels counted")
    return 0
