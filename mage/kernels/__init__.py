"""Kernel files, loaded by content: an edited file is what the next call runs.

``load("triton/layernorm")`` imports ``kernels/triton/layernorm.py`` under a private name. ``kernels``
is never imported as a top-level package: the name belongs to another project. The module is executed
from the file's bytes as they are now, so neither a stale bytecode cache nor a file time of the same
second can bring an older version back.

Beside it:

    stage            what a stage of a CUDA C++ kernel is
    cuda_stages      every stage of the CUDA C++ kernels: grid, block, what it can take
    matmul_tiles     the matmul stages of one block a multiprocessor, and which tile they take
    configurations   configurations of a Triton or cuTile kernel file
    tuned            the configurations that searches chose, by GPU
"""

from __future__ import annotations

import hashlib
import linecache
import sys
import types
from pathlib import Path

from mage import paths, provenance
from mage.errors import RequestError

_SUFFIX = {"triton": ".py", "cutile": ".py", "cuda": ".cu"}


def path(name: str | Path) -> Path:
    """The file of kernel ``name``, e.g. ``triton/layernorm`` or ``cuda/matmul``; a Path is itself.

    RequestError when the folder or the file is not there.
    """
    if isinstance(name, Path):
        file = name.resolve()
    else:
        family, _, operation = name.partition("/")
        if family not in _SUFFIX or not operation:
            raise RequestError(f"no kernel {name!r}: give one of {', '.join(_SUFFIX)}, a slash and an operation")
        file = paths.KERNELS / family / (operation + _SUFFIX[family])
    if not file.is_file():
        raise RequestError(f"no kernel file {file}: Mage runs from a checkout; set MAGE_ROOT to the folder that holds kernels/")
    return file


def source(name: str | Path) -> str:
    """Text of the kernel file, noted as used by this process."""
    file = path(name)
    content = file.read_bytes()
    provenance.note_use(file, content)
    return content.decode("utf-8")


def load(name: str | Path) -> types.ModuleType:
    """The Python kernel file ``name`` as a module; the same object until the file's content changes."""
    file = path(name)
    content = file.read_bytes()
    provenance.note_use(file, content)
    # The content is part of the name: a module that is still in use stays whole beside its successor.
    place = hashlib.sha256(str(file).encode()).hexdigest()[:8]
    private = f"_mage_kernels.{file.stem}_{place}_{hashlib.sha256(content).hexdigest()[:16]}"
    if private in sys.modules:
        return sys.modules[private]
    # Triton and cuTile read the source of a kernel through the line cache: give it these bytes.
    lines = content.decode("utf-8").splitlines(keepends=True)
    linecache.cache[str(file)] = (len(content), None, lines, str(file))
    module = types.ModuleType(private, f"Kernel file {file}")
    module.__file__ = str(file)
    sys.modules[private] = module
    try:
        exec(compile(content, str(file), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[private]
        raise
    return module
