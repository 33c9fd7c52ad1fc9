"""What cuTile's FP32 matrix product becomes: assembler releases × tile shapes × GPUs, by ct.mma and by rank-1 updates.

Where other releases are installed apart (``make tile-compilers``) the rows are computed; a release that is not
there is read from the retained census, and each row says which it is. Without any, all rows are the retained ones.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mage import kernels, paths, provenance
from mage.census import compile_pool, tile_releases
from mage.census.offline import Job
from mage.errors import EvidenceError

SCHEMA = "mage.tile-census/1"

# The twelve shapes that the published sweep (mage-004) tried by hand, the tuner's pick, and one more.
TILES = (
    "16x16x8", "16x16x32", "32x32x8", "32x32x32", "64x64x8", "64x64x32", "64x128x8", "128x64x8", "128x64x16", "128x64x32",
    "128x128x8", "256x64x8", "32x128x32", "64x64x16",
)  # fmt: skip
PRODUCTS = {"ct.mma": "matmul_kernel", "rank-1": "matmul_rank1_kernel"}
"""How the kernel multiplies two tiles, and its function's name in kernels/cutile/matmul.py."""
ARCHS = ("sm_89", "sm_90")

_NUMBERS = (
    "instructions", "FFMA", "FMUL", "FADD", "multiply-adds", "tensor-core", "registers", "threads", "static shared", "stack",
    "local bytes stored", "local bytes loaded", "shared loads", "shared words read", "code", "blocks per SM",
)  # fmt: skip
COLUMNS = ("product", "tile", "gpu", "release", *_NUMBERS, "refused")
RETAINED, COMPUTED = "retained", "computed here"


class _File(BaseModel):
    """The retained census as it lies on disk. ``sha256`` is that of the rows."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    schema_: Literal["mage.tile-census/1"]
    origin: Literal["retained"]
    when: str
    device: dict[str, str]
    software: dict[str, str]
    kernel_sha256: str
    columns: tuple[str, ...]
    rows: tuple[tuple[int | str | None, ...], ...]
    sha256: str


def path() -> Path:
    """The retained census, committed."""
    return paths.RETAINED / "census" / "tile-releases.json"


def census():
    """A DataFrame, one row for each release, tile, GPU and way to multiply; ``origin`` says where the row is from.

    ``stale`` is true for retained rows that were counted from another text of the kernel file than today's.
    """
    import pandas as pd

    kept = load()
    known = {tuple(row[column] for column in COLUMNS[:4]): row for row in kept}
    here = {}
    if tile_releases.apart():
        jobs = _jobs((*tile_releases.apart(), tile_releases.INSTALLED))
        here = dict(zip(jobs, _compute(jobs), strict=True))
    rows = [{**here.get(key, row), "origin": COMPUTED if key in here else RETAINED} for key, row in known.items()]
    rows += [{**row, "origin": COMPUTED, "stale": False} for key, row in here.items() if key not in known]
    return pd.DataFrame([{"stale": False, **row} for row in rows])


def load() -> list[dict]:
    """Rows of the retained census. EvidenceError names the file and what is wrong with it."""
    file = path()
    where = paths.shown(file)
    try:
        content = file.read_bytes()
        data = json.loads(content)
        if isinstance(data, dict):
            data["schema_"] = data.pop("schema", None)
        record = _File.model_validate_json(json.dumps(data))
    except OSError as error:
        raise EvidenceError(f"{where}: cannot be read ({error.strerror})") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise EvidenceError(f"{where}: field {'.'.join(map(str, first['loc'])).rstrip('_')}: {first['msg']}") from None
    except ValueError as error:
        raise EvidenceError(f"{where}: not JSON ({error})") from None
    if record.columns != COLUMNS or any(len(row) != len(COLUMNS) for row in record.rows):
        raise EvidenceError(f"{where}: its columns are not those of {SCHEMA}; write it anew with python -m mage tile-compilers --retain")
    if _digest(record.rows) != record.sha256:
        raise EvidenceError(f"{where}: sha256 is not that of its rows: the file was edited or damaged; take it from git again")
    provenance.note_use(file, content)
    stale = record.kernel_sha256 != _kernel_sha256()
    return [{**dict(zip(COLUMNS, row, strict=True)), "stale": stale} for row in record.rows]


def retain() -> Path:
    """Compute every row with every release and write the retained census. EvidenceError where a release is missing."""
    if missing := [release for release in tile_releases.PACKAGES if release not in tile_releases.apart()]:
        raise EvidenceError(f"tileiras {', '.join(missing)} is not installed: `make tile-compilers` installs it apart")
    jobs = _jobs((*tile_releases.PACKAGES, tile_releases.INSTALLED))
    rows = [[row[column] for column in COLUMNS] for row in _compute(jobs)]
    record = {
        "schema": SCHEMA,
        "origin": RETAINED,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": {"name": "none: compiled for sm_89 and sm_90, not run"},
        "software": {
            f"release {tile_releases.version(job.release)}": compile_pool.compiler(job)
            for job in {key[3]: job for key, job in jobs.items()}.values()
        },
        "kernel_sha256": _kernel_sha256(),
        "sha256": _digest(rows),
        "columns": COLUMNS,
        "rows": rows,
    }
    write_json(path(), record)
    return path()


def _jobs(releases) -> dict[tuple, Job]:
    """The jobs of some releases, by the columns that name a row."""
    jobs = {}
    for product, kernel in PRODUCTS.items():
        for tile in TILES:
            config = dict(zip(("TILE_M", "TILE_N", "TILE_K"), map(int, tile.split("x")), strict=True))
            for arch in ARCHS:
                for release in releases:
                    jobs[product, tile, arch, tile_releases.version(release)] = Job(
                        operation="matmul", implementation="cutile", variant=product, arch=arch, config=config, kernel=kernel,
                        release=release,
                    )  # fmt: skip
    return jobs


def _compute(jobs: dict[tuple, Job]) -> list[dict]:
    found = compile_pool.rows(list(jobs.values()))
    return [
        dict(zip(COLUMNS, (*key, *(row.get(column) for column in _NUMBERS), row["refused"]), strict=True))
        for key, row in zip(jobs, found, strict=True)
    ]


def _kernel_sha256() -> str:
    return hashlib.sha256(kernels.source("cutile/matmul").encode()).hexdigest()


def _digest(rows) -> str:
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def write_json(file: Path, record: dict) -> None:
    """Write a record of rows in one step: one line a field, and one a row, for git to compare."""
    rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in record["rows"])
    fields = [f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in record.items() if name != "rows"]
    text = "{\n" + ",\n".join([*fields, f' "rows": [\n{rows}\n ]']) + "\n}\n"
    paths.write_whole(file, text.encode())
