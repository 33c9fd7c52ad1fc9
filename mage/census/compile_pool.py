"""Rows of the census, from the disk where they were made before, else from compilers in processes of their own.

A row is kept under the hash of all that made it: the job, the kernel file, how the kernel is launched, the modules
that compile and count, and the compiler's version. A compiler that crashes takes its own row with it, not the census; neither what a
process has imported nor ``TRITON_INTERPRET`` reaches the compilers.

``python -m mage.census.compile_pool`` is one such process: jobs in on stdin, rows out on stdout, a line of JSON each.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from mage import cuda, operations, paths, provenance
from mage.census import tile_releases
from mage.census.offline import Job
from mage.errors import MageError
from mage.kernels import cuda_stages

_MAKERS = ("cuda/cubins.py", *(f"census/{name}.py" for name in ("describe", "occupancy", "offline", "ptx", "sass")))
"""Modules whose text decides what is in a row; of another release's also tile_releases.py."""


Row = dict[str, object]


def rows(jobs: Sequence[Job]) -> list[Row]:
    """A row for every job, in order; ``refused`` says why a kernel could not be compiled (None where it was)."""
    keys = [_key(job) for job in jobs]
    found = [_kept(key) for key in keys]

    def made(place: int, row: dict) -> None:
        found[place] = {**_head(jobs[place]), **row}
        # a file that was edited meanwhile made this row, or did not: leave it out
        if row["refused"] is None and _key(jobs[place]) == keys[place]:
            _keep(keys[place], found[place])

    _compile({place: job for place, job in enumerate(jobs) if found[place] is None}, made)
    return found


def _head(job: Job) -> dict:
    return {
        "operation": job.operation, "implementation": job.implementation, "variant": job.variant, "gpu": job.arch,
        "compiled": job.specialization,
    }  # fmt: skip


# -- rows on disk ----------------------------------------------------------------------------------------


def _key(job: Job) -> str:
    folder = paths.KERNELS / job.implementation
    files = [folder / f"{job.operation}.{'cu' if job.implementation == 'cuda' else 'py'}"]
    if job.implementation == "cuda":
        files.append(folder / "mage.cuh")
    dims = operations.get(job.operation).check_dims(job.dims)
    made_by = [asdict(job), dims, compiler(job), _makers(job.release != tile_releases.INSTALLED)]
    if job.implementation == "cuda":
        stage = cuda_stages.choose(job.operation, job.variant, dims).stage
        made_by += [cuda.OPTIONS, stage.kernel, stage.grid(dims), stage.block_at(dims)]
    digest = hashlib.sha256(json.dumps(made_by, sort_keys=True).encode())
    for file in files:
        content = file.read_bytes() if file.is_file() else b"absent"
        if file.is_file():
            provenance.note_use(file, content)
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


@functools.cache
def _makers(apart: bool) -> str:
    names = (*_MAKERS, "census/tile_releases.py") if apart else _MAKERS
    return hashlib.sha256(b"".join((paths.PACKAGE / name).read_bytes() for name in names)).hexdigest()


def compiler(job: Job) -> str:
    """Packages and versions that compile this job."""
    wanted = {
        "cuda": ("nvidia-cuda-nvrtc",),
        "triton": ("triton",),
        "cutile": ("cuda-tile", "nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm"),
    }[job.implementation]
    if job.release != tile_releases.INSTALLED:
        return f"{_packages(wanted[:1])}, {', '.join(tile_releases.PACKAGES.get(job.release, (f'tileiras {job.release}',)))}"
    return _packages(wanted)


@functools.cache
def _packages(names: tuple[str, ...]) -> str:
    found = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            # NVRTC of a toolkit, say: ask the library itself
            found.append(f"NVRTC {cuda.compiler_version()}" if name == "nvidia-cuda-nvrtc" else f"{name} absent")
    return ", ".join(found)


def _file(key: str) -> Path:
    return cuda.cache_dir() / "census" / f"{key[:40]}.json"


def _kept(key: str) -> dict | None:
    with contextlib.suppress(OSError, ValueError, KeyError):
        kept = json.loads(_file(key).read_bytes())
        return kept["row"] if kept["key"] == key else None
    return None


def _keep(key: str, row: dict) -> None:
    """All or nothing; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        paths.write_whole(_file(key), json.dumps({"key": key, "row": row}).encode())


# -- compilers in processes of their own -----------------------------------------------------------------


def _compile(jobs: dict[int, Job], made: Callable[[int, dict], None]) -> None:
    """Compile jobs, each under a number; ``made(number, row)`` as soon as a row is there."""
    waiting: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
    for batch in _batches(jobs):
        waiting.put(batch)
    failures: list[BaseException] = []
    handing_over = threading.Lock()

    def serve(worker: _Worker) -> None:
        try:
            while True:
                batch = waiting.get_nowait()
                for number, row in zip(batch, worker.rows([jobs[number] for number in batch]), strict=True):
                    with handing_over:
                        made(number, row)
        except queue.Empty:
            pass
        except BaseException as error:
            failures.append(error)

    workers = [_Worker() for _ in range(min(waiting.qsize(), len(os.sched_getaffinity(0))))]
    threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for worker in workers:
            worker.close()
    if failures:
        raise failures[0]


def _batches(jobs: dict[int, Job]) -> list[list[int]]:
    """Numbers of jobs that one process does together: all stages of a CUDA C++ file are one build. Those come first."""
    together: dict[tuple, list[int]] = {}
    for number, job in jobs.items():
        alone = number if job.implementation != "cuda" else None
        together.setdefault((job.implementation, job.operation, job.arch, alone), []).append(number)
    return sorted(together.values(), key=lambda batch: jobs[batch[0]].implementation != "cuda")


class _Worker:
    """A process that compiles; started when it is needed, and again after a compiler has brought it down."""

    def __init__(self):
        self._process: subprocess.Popen | None = None
        self._closed = False

    def rows(self, jobs: list[Job]) -> list[dict]:
        answer = self._ask(jobs)
        if answer is not None:
            return answer
        if len(jobs) == 1:
            return [{"refused": f"the compiler crashed: {self._last_words}"}]
        return [row for job in jobs for row in self.rows([job])]

    def _ask(self, jobs: list[Job]) -> list[dict] | None:
        if self._process is None:
            self._process = self._start()
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps([asdict(job) for job in jobs]) + "\n")
            self._process.stdin.flush()
            if (line := self._process.stdout.readline()).endswith("\n"):
                return json.loads(line)
        if self._closed:
            raise KeyboardInterrupt
        code = self._process.wait()
        self._last_words = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._process = None
        return None

    def _start(self) -> subprocess.Popen:
        path = [str(paths.PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment["PYTHONPATH"] = os.pathsep.join(path)
        return subprocess.Popen(
            [sys.executable, "-m", "mage.census.compile_pool"],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def close(self) -> None:
        self._closed = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _serve() -> None:
    # Compilers write to stdout as they like: what is theirs goes with stderr.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        jobs = [Job(**{**fields, "dims": fields["dims"] and tuple(fields["dims"])}) for fields in json.loads(line)]
        answers.write(json.dumps([_row(job) for job in jobs]) + "\n")
        answers.flush()


def _row(job: Job) -> dict:
    from mage.census import describe, offline

    try:
        return {**describe.row(offline.compile(job)), "refused": None}
    except MageError as error:
        return {"refused": str(error)}
    except Exception as error:  # each compiler has errors of its own
        return {"refused": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


if __name__ == "__main__":
    _serve()
