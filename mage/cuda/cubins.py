"""Reading a cubin, the GPU's own executable: its disassembly, what its kernels ask for, its block size.

The tools are Triton's own copies of cuobjdump, so no CUDA toolkit need be installed.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import re
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mage.errors import MageError

_RESERVED_SHARED = 1024
"""Bytes a block that the system takes from compute capability 9.0 on; cuobjdump counts them, the driver does not."""


@dataclass(frozen=True)
class Resources:
    """What a kernel asks of a multiprocessor: registers a thread, static shared bytes a block (without those
    the system reserves), and bytes of stack and of local memory a thread, which are 0 unless it spills."""

    registers: int
    shared: int
    stack: int
    local: int


def usage(cubin: bytes, arch: str) -> dict[str, Resources]:
    """Resource request of every kernel in ``cubin``, by name; ``arch`` is what it was compiled for (``sm_90``)."""
    reserved = _RESERVED_SHARED if int(re.sub(r"\D", "", arch)) >= 90 else 0
    rows = re.findall(
        r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", cuobjdump("-res-usage", cubin)
    )
    return {
        name: Resources(int(registers), max(0, int(shared) - reserved), int(stack), int(local))
        for name, registers, stack, shared, local in rows
    }


@functools.lru_cache(maxsize=64)
def cuobjdump(option: str, cubin: bytes) -> str:
    """Output of ``cuobjdump option`` (``-sass``, ``-res-usage``) on ``cubin``."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        done = subprocess.run([_tool("cuobjdump"), option, str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MageError(f"cuobjdump {option} failed: {(done.stderr or done.stdout).strip()[:200]}")
    return done.stdout


def _tool(name: str) -> str:
    spec = importlib.util.find_spec("triton")  # finds the package without importing it
    if spec and spec.origin:
        own = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / name
        if own.is_file():
            return str(own)
    if found := shutil.which(name):
        return found
    raise MageError(f"no {name}: it comes with triton (pip install triton) and with the CUDA toolkit")


# Attributes of a kernel's .nv.info section: a format byte, an attribute byte, then a 16-bit size and a value.
_SIZED, _REQUIRED_THREADS, _MAX_THREADS = 4, 0x10, 0x05


def threads(cubin: bytes) -> int:
    """Threads of a block that a cubin's only kernel is bound to; 0 where it states none."""
    for name, content in _sections(cubin):
        at = 0
        while name.startswith(".nv.info.") and at + 4 <= len(content):
            form, attribute, size = struct.unpack_from("<BBH", content, at)
            if form == _SIZED and attribute in (_REQUIRED_THREADS, _MAX_THREADS):
                return math.prod(struct.unpack_from("<3I", content, at + 4))
            at += 4 + (size if form == _SIZED else 0)
    return 0


def _sections(elf: bytes):
    """Name and content of each section of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    strings = headers[names][4]
    for name, kind, _, _, offset, length in headers:
        start = strings + name
        yield elf[start : elf.index(0, start)].decode(), b"" if kind == 8 else elf[offset : offset + length]
