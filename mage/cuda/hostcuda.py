"""CUDA C++ kernels on the CPU: built by the machine's C++ compiler, one OS thread a CUDA thread.

A kernel file is compiled as it stands behind ``mage/cuda/host/cuda_builtins.h`` and run in a process of its
own by ``mage/cuda/host/runner.cpp``. What this shows of a kernel, with no GPU: its results at small shapes,
barriers that are missing or not reached by all, accesses outside an argument or a shared array,
misaligned wide accesses, shared memory read before it was written, ``cp.async`` copies used too early
(the bytes land at the issue in one run and at the wait in another), and, under ThreadSanitizer, data
races between threads of a block and between blocks.

What it does not show: anything about time; the rounding of the device's approximate functions; that the
lanes of a warp run in step (here they never do). Shuffles order no memory, here as on the device, but
races within a warp are only sampled: racecheck on a GPU decides on those.

    report = launch(paths.KERNELS / "cuda" / "gelu.cu", "gelu_elementwise", 4, 256, [x, bias, y, rows, 768])

Linux only: the runner sleeps on futexes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from mage import kernels, paths
from mage.cuda.host.translate import translate
from mage.errors import MageError, RequestError

HOST = paths.PACKAGE / "cuda" / "host"
_HEADERS = ("*.h", "*.cuh")
SANITIZERS = (None, "thread", "address")

# -O1: the lines of reports stay true, and a launch at a small shape is all thread switches anyway.
# alignment: the hardware faults on a misaligned quad, this processor does not; runner.cpp takes the call.
# no-pie: the address of a fault is then the address that addr2line wants.
_COMPILE = "-std=c++17 -O1 -g1 -fno-strict-aliasing -fno-omit-frame-pointer -fno-pie -fsanitize=alignment -w".split()
_RUNNER = "-std=c++17 -O2 -g1 -fno-pie".split()
_LINK = "-no-pie -pthread".split()
_COMPILE_TIMEOUT_S = 300

# Python's letter for an array's dtype; cuda_builtins.h derives the same letters from the parameters.
_LETTERS = {"f4": "F", "i4": "I", "u4": "I", "f8": "D", "i8": "L", "u8": "L"}


class HostKernelError(MageError):
    """A kernel did not build, or did something on the host that it may not do.

    ``kind`` is one of ``compile``, ``race``, ``out-of-bounds``, ``misaligned``, ``deadlock``, ``crash`` and
    ``not-reached`` (the barrier to leave out was never passed); ``details`` is the whole report.
    """

    def __init__(self, kind: str, message: str, details: str = ""):
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.details = details or message


@dataclass(frozen=True, kw_only=True)
class LaunchReport:
    """What a launch that went well tells beside its results."""

    shared_bytes: int  # static shared arrays that were reached, bytes a block
    barriers: dict[int, int]  # __syncthreads() that were reached: number (for drop_barrier) -> source line
    seconds: float  # wall time of the process; says nothing about a GPU


def compiler() -> str | None:
    """Path of the C++ compiler: ``CXX`` if it is set, else g++, c++ or clang++; None if there is none.

    Callers that get None say "not checked on this machine".
    """
    words = _compiler_words()
    return words[0] if words else None


def _compiler_words() -> list[str]:
    if not sys.platform.startswith("linux"):
        return []
    named = shlex.split(os.environ.get("CXX", ""))
    for words in [named] if named else [["g++"], ["c++"], ["clang++"]]:
        if found := shutil.which(words[0]):
            return [os.path.abspath(found), *words[1:]]
    return []


@lru_cache
def _compiler_version(words: tuple[str, ...], modified_ns: int) -> str:
    return subprocess.run([*words, "--version"], capture_output=True, text=True, timeout=60).stdout


@lru_cache
def can_sanitize(sanitizer: str) -> str | None:
    """None if programs built with ``sanitizer`` run on this machine, else the reason, one line."""
    if not compiler():
        return "no C++ compiler"
    probe = 'extern "C" __global__ void probe(int* x) { atomicAdd(x, 1); }'
    try:
        launch(probe, "probe", 1, 2, [np.zeros(1, np.int32)], tsan=sanitizer == "thread", asan=sanitizer == "address")
    except HostKernelError as error:
        return str(error)
    return None


# ---- from a kernel file to a program


def build(source: str | Path, sanitize: str | None = None) -> Path:
    """The program that runs the kernels of ``source`` (a file's Path, or CUDA C++ text), built if need be.

    It is kept in the cache (``MAGE_CACHE``, else ``mage`` in the user's cache folder) under a hash of the
    source, all headers, the compiler's version and the options. HostKernelError of kind ``compile`` names
    the first error with file and line.
    """
    if sanitize not in SANITIZERS:
        raise RequestError(f"no sanitizer {sanitize!r}: give one of {', '.join(map(str, SANITIZERS))}")
    words = _compiler_words()
    if not words:
        raise HostKernelError("compile", "no C++ compiler on this machine: install g++ or set CXX")
    folder, name = (source.resolve().parent, source.name) if isinstance(source, Path) else (None, "kernel.cu")
    unit = translate(kernels.source(source) if isinstance(source, Path) else source, name)
    version = _compiler_version(tuple(words), os.stat(words[0]).st_mtime_ns)

    # The host's mage.cuh comes before the kernel folder's own, which is PTX.
    includes = [f"-I{HOST}"] + ([f"-I{folder}"] if folder else [])
    sanitizer = [f"-fsanitize={sanitize}"] if sanitize else []
    host = _contents(HOST, *_HEADERS, "*.hpp", "*.cpp")
    beside = _contents(folder, *_HEADERS) if folder else []
    options = [*words, *_RUNNER, *_COMPILE, *_LINK, *sanitizer]
    program = _cache() / f"{Path(name).stem}-{_hash(unit, version, *options, *host, *beside)}"
    if program.exists():
        return program

    runner = _cache() / f"runner-{_hash(version, *words, *_RUNNER, *host)}.o"
    with tempfile.TemporaryDirectory(dir=_cache(), prefix="building-") as work:
        if not runner.exists():
            _compile([*words, *_RUNNER, "-c", str(HOST / "runner.cpp"), "-o", "runner.o"], work)
            os.replace(f"{work}/runner.o", runner)
        # Named like the kernel file and compiled in its folder: so it is called in every report.
        Path(work, name).write_text(unit, encoding="utf-8")
        unit_options = [*_COMPILE, *sanitizer, *includes, "-include", "cuda_builtins.h", "-x", "c++"]
        _compile([*words, *unit_options, "-c", name, "-o", "unit.o"], work)
        # Linked without -fsanitize=alignment: its handler is in runner.cpp, not in the compiler's library.
        _compile([*words, *_LINK, *sanitizer, "unit.o", str(runner), "-o", "program"], work)
        os.replace(f"{work}/program", program)
    return program


def _cache() -> Path:
    root = os.environ.get("MAGE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "mage")
    folder = Path(root, "hostcuda").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _contents(folder: Path, *patterns: str) -> list[str]:
    files = sorted(file for pattern in patterns for file in folder.glob(pattern))
    return [file.name + "\0" + file.read_text(encoding="utf-8") for file in files]


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0\0".join(parts).encode()).hexdigest()[:32]


def _compile(command: list[str], folder: str) -> None:
    environment = {**os.environ, "LC_ALL": "C"}  # the word "error" is looked for in the compiler's answer
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S)
    if done.returncode:
        lines = done.stderr.splitlines() or [f"{command[0]} ended with status {done.returncode}"]
        first = next((line for line in lines if re.search(r"\berror\b|undefined reference|cannot find", line)), lines[0])
        raise HostKernelError("compile", first.strip(), done.stderr)


# ---- one launch


def launch(
    source: str | Path,
    kernel: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[np.ndarray | int | float],
    *,
    cp_async: str = "issue",
    tsan: bool = False,
    asan: bool = False,
    drop_barrier: int | None = None,
    shared: int = 0,
    timeout_s: float = 60.0,
) -> LaunchReport:
    """Runs ``kernel`` once on NumPy arrays, which are changed in place; after an error they are as before.

    ``source``: a kernel file's Path, or CUDA C++ text. ``args``: one for each parameter; contiguous arrays
    for pointers (the same array given twice is one), numbers for the rest. ``cp_async``: whether copied
    bytes land at their ``issue`` or at the ``wait`` that covers them. ``drop_barrier``: number of the
    ``__syncthreads()`` to leave out, counted through the file from 0 (LaunchReport.barriers has those that
    a launch reaches); with copies in flight use ``wait``, because bytes that land at once may be covered
    by an earlier barrier. ``shared``: bytes of ``extern __shared__`` memory. ``tsan``: report data races;
    ``asan``: report accesses outside an array, reads too, with their source line; both build anew and run
    slower.

    HostKernelError as its docstring lists; RequestError for arguments that the kernel cannot take.
    Meant for small shapes: a block of 256 threads costs a few milliseconds a barrier.
    """
    if cp_async not in ("issue", "wait"):
        raise RequestError(f"cp_async={cp_async!r}: give 'issue' or 'wait'")
    if tsan and asan:
        raise RequestError("tsan and asan exclude each other: run twice")
    grid, block = _three(grid, "grid"), _three(block, "block")
    if np.prod(block) > 1024:
        raise RequestError(f"block {block} has {np.prod(block)} threads, a block has at most 1024")
    sanitize = "thread" if tsan else "address" if asan else None
    program = build(source, sanitize)
    with tempfile.TemporaryDirectory(prefix="mage-hostcuda-") as work:
        data = Path(work, "data")
        words, places = _write_arguments(data, args)
        command = [str(program), str(data), kernel, *map(str, (*grid, *block, shared)), cp_async]
        command += [str(-1 if drop_barrier is None else drop_barrier), *words]
        started = time.perf_counter()
        done = _run(command, timeout_s)
        seconds = time.perf_counter() - started
        if done.returncode:
            raise _error(done, program)
        report = _read_report(done.stdout, seconds)
        if drop_barrier is not None and drop_barrier not in report.barriers:
            raise HostKernelError("not-reached", f"barrier {drop_barrier} is not passed by {kernel}; those passed: {report.barriers}")
        content = data.read_bytes()
    for array, offset in places:
        array[...] = np.frombuffer(content, array.dtype, array.size, offset).reshape(array.shape)
    return report


def _three(size: int | Sequence[int], what: str) -> tuple[int, int, int]:
    given = (size,) if isinstance(size, int | np.integer) else tuple(size)
    if not 1 <= len(given) <= 3 or any(int(n) != n or n < 1 for n in given):
        raise RequestError(f"{what}={size!r}: give one to three positive ints")
    return tuple(int(n) for n in (*given, 1, 1)[:3])


def _write_arguments(data: Path, args: Sequence) -> tuple[list[str], list[tuple[np.ndarray, int]]]:
    """The arrays into the file ``data``; the words for the command line, and each array with its offset."""
    words, places, end = [], [], 0
    with data.open("wb") as file:
        for number, arg in enumerate(args):
            if not isinstance(arg, np.ndarray):
                integer = isinstance(arg, int | np.integer) and not isinstance(arg, bool)
                if not integer and not isinstance(arg, float | np.floating):
                    raise RequestError(f"argument {number} is {type(arg).__name__}: give a NumPy array, an int or a float")
                words.append(f"i:{int(arg)}" if integer else f"f:{float(arg)!r}")
                continue
            if not (arg.flags.c_contiguous and arg.flags.writeable and arg.flags.aligned and arg.dtype.isnative):
                raise RequestError(f"argument {number}: the array must be contiguous, aligned and writeable")
            offset = end
            for other, at in places:
                if other.ctypes.data == arg.ctypes.data and other.nbytes == arg.nbytes:
                    offset = at
                elif np.shares_memory(other, arg):
                    raise RequestError(f"argument {number} overlaps another array: give whole arrays")
            if offset == end:
                file.write(arg.tobytes())
                end += arg.nbytes
            words.append(f"{_LETTERS.get(arg.dtype.str[1:], 'B')}:{offset}:{arg.nbytes}")
            places.append((arg, offset))
    return words, places


def _run(command: list[str], timeout_s: float) -> subprocess.CompletedProcess:
    environment = {
        **os.environ,
        "TSAN_OPTIONS": "halt_on_error=1:exitcode=66:report_signal_unsafe=0",
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:exitcode=67",
    }
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout_s, env=environment)
    except subprocess.TimeoutExpired:
        raise HostKernelError("deadlock", f"the kernel did not end within {timeout_s:g} s") from None
    # Older ThreadSanitizers cannot live with the address randomisation of newer kernels (vm.mmap_rnd_bits = 32).
    if "unexpected memory mapping" in done.stderr and command[0] != "setarch" and shutil.which("setarch"):
        return _run(["setarch", "-R", *command], timeout_s)
    return done


def _read_report(text: str, seconds: float) -> LaunchReport:
    rows = [line.split("\t") for line in text.splitlines()]
    return LaunchReport(
        shared_bytes=next(int(row[1]) for row in rows if row[0] == "shared"),
        barriers={int(row[1]): int(row[2]) for row in rows if row[0] == "barrier"},
        seconds=seconds,
    )


# ---- what went wrong, in one line

_FRAME = re.compile(r"^\s+#\d+ (?!.*\bmage_host::).*?(?P<place>[^\s/()]+:\d+)(?::\d+)?(?: |$)", re.MULTILINE)


def _error(done: subprocess.CompletedProcess, program: Path) -> MageError:
    text = done.stderr
    if "WARNING: ThreadSanitizer: data race" in text:
        return HostKernelError("race", _race(text), text)
    if found := re.search(r"ERROR: AddressSanitizer: ([\w-]+)", text):
        access = re.search(r"^(READ|WRITE) of size (\d+)", text, re.MULTILINE)
        what = f"{access[1].lower()} of {access[2]} bytes" if access else found[1]
        stack = text[found.end() :].split("\n\n")[0]  # later ones tell where the thread was started
        return HostKernelError("out-of-bounds", f"{what} outside an array, {_place(stack)}", text)
    if found := re.search(r"^mage-host\t([\w-]+)\t(.*)$", text, re.MULTILINE):
        kind, message = found.groups()
        message = re.sub(r" @([0-9a-f]+)$", lambda m: _source_line(program, m[1]), message)
        return RequestError(message) if kind == "request" else HostKernelError(kind, message, text)
    if done.returncode < 0:
        return HostKernelError("crash", f"the kernel was ended by {signal.Signals(-done.returncode).name}", text)
    lines = text.strip().splitlines() or ["no message"]
    return HostKernelError("crash", f"exit status {done.returncode}: {lines[0]}", text)


def _race(text: str) -> str:
    # Two paragraphs of the report say who: "Write of size 4 at ... by thread T7:", "Previous read of ...".
    sides = re.findall(r"^  (?:Previous )?((?:atomic )?(?:read|write)) of size (\d+)[^\n]*\n((?:    .*\n)*)", text, re.M | re.I)
    told = [f"{how.lower()} of {size} bytes at {_place(frames)}" for how, size, frames in sides[:2]]
    return " and ".join(told) + " without a barrier between them" if told else "data race"


def _place(frames: str) -> str:
    """Line of the access in the kernel's files, not in a header of ours; and the line that called its function."""
    ours = {file.name for file in HOST.iterdir()}
    found = [(m["place"], Path(m["place"].split(":")[0])) for m in _FRAME.finditer(frames)]
    places = [place for place, file in found if file.suffix in (".cu", ".cuh") and file.name not in ours]
    if not places:
        return "an unknown line"
    return places[0] + (f" (from {places[1]})" if len(places) > 1 else "")


def _source_line(program: Path, address: str) -> str:
    if not (tool := shutil.which("addr2line")):
        return ""
    done = subprocess.run([tool, "-i", "-e", str(program), address], capture_output=True, text=True, timeout=60)
    frames = "".join(f"    #0 {line.split(' ')[0]}\n" for line in done.stdout.splitlines() if "?" not in line)
    return f", {_place(frames)}" if frames else ""
