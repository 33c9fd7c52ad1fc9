"""The harness's own kernels on one GPU: they mark, evict, control and read the clock, and measure the device's limits.

They compute no operation. Everything that a launch needs is allocated and bound when a ``Probe`` is made.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Sequence

from mage import cuda, paths, provenance

CONTROL_STEPS = 4096
"""Length of the control kernel: so long (some 0.2 ms) that what a launch costs is lost in the band that it is held to."""
CLOCK_US = 100
FMA_STEPS = 8192
_FMA_CHAINS = 8
_CONTROL_QUADS = 262144  # the control walks through 2²⁰ floats
_SPAN = (256, 1, 1)


def source() -> str:
    """Text of probe.cu, noted as used by this process."""
    file = paths.PACKAGE / "experiment" / "probe.cu"
    content = file.read_bytes()
    provenance.note_use(file, content)
    return content.decode("utf-8")


class Probe:
    """``evict()``, ``control()``, ``marker(case, segment)`` and ``fma()`` queue one launch; ``clock()`` waits for its answer.

    On the current CUDA device. ``evict`` reads more than twice the L2 cache; nothing of it is written.
    """

    def __init__(self):
        import torch

        self.device = torch.cuda.current_device()
        properties = torch.cuda.get_device_properties(self.device)
        self.multiprocessors = properties.multi_processor_count
        self.l2_bytes = properties.L2_cache_size
        self._binary = cuda.build("probe", cuda.device_arch(self.device), source())
        wide = (8 * self.multiprocessors, 1, 1)

        evicted = int(2.25 * self.l2_bytes) // 16
        buffer = torch.zeros(4 * evicted, device="cuda")
        sink = torch.zeros(4, device="cuda")
        self.evict = self._bind("mage_evict", [buffer, sink], [evicted], wide)

        walked = torch.randn(4 * _CONTROL_QUADS, device="cuda")
        out = torch.empty(256 * wide[0], device="cuda")
        self.control = self._bind("mage_control", [walked, out], [CONTROL_STEPS], (2 * self.multiprocessors, 1, 1))

        self._times = torch.zeros(2, dtype=torch.int64, device="cuda")
        self._clock = self._bind("mage_clock", [self._times], [CLOCK_US], (1, 1, 1), (1, 1, 1))

        factors = torch.tensor([0.999, 1e-3], device="cuda")
        self._fma_readings = torch.zeros(wide[0], 5, dtype=torch.int64, device="cuda")
        self.fma = self._bind("mage_fma", [factors, out, self._fma_readings], [FMA_STEPS], wide)
        self.fma_flops = 2 * _FMA_CHAINS * FMA_STEPS * 256 * wide[0]

    def _bind(self, kernel, tensors, integers, grid, block=_SPAN):
        return cuda.bind(self._binary, kernel, tensors, integers, grid, block, self.device)

    @functools.cache  # noqa: B019, a probe lives as long as its process
    def _marker(self, case: int, segment: int):
        return self._bind("mage_marker", [], [], (case + 1, segment + 1, 1), (1, 1, 1))

    def marker(self, case: int, segment: int) -> None:
        """Say in the device's own timeline that ``segment`` of ``case`` follows (segment < 65535)."""
        self._marker(case, segment)()

    def forget_persisting_lines(self) -> None:
        """Lines that were asked to stay in the L2 cache become ordinary ones, which eviction reaches."""
        from cuda.bindings import driver

        driver.cuCtxResetPersistingL2Cache()

    def clock(self) -> float:
        """Clock of a multiprocessor in MHz: its cycles against the device's nanoseconds, over 100 µs."""
        self._clock()
        cycles, nanoseconds = self._times.tolist()
        return 1e3 * cycles / nanoseconds

    def fma_clock(self) -> float:
        """Clock in MHz over the whole of the last ``fma()``, counted by that kernel itself."""
        return clock_of(self._fma_readings.tolist())

    def copy(self, total_bytes: int, quads_a_thread: int = 1):
        """A launch that moves ``total_bytes``, half of them read and half written."""
        import torch

        quads = max(1, total_bytes // 32)
        source, target = torch.randn(4 * quads, device="cuda"), torch.empty(4 * quads, device="cuda")
        blocks = -(-quads // (256 * quads_a_thread))
        return self._bind("mage_copy", [source, target], [quads], (blocks, 1, 1))


def clock_of(readings: Sequence[Sequence[int]]) -> float:
    """MHz, median over the multiprocessors: from the begin of a multiprocessor's first block to the end of its last.

    ``readings`` as ``mage_fma`` leaves them: multiprocessor, cycles and ns at the begin, cycles and ns at the end, a
    block each.
    """
    blocks: dict[int, list[Sequence[int]]] = {}
    for one in readings:
        blocks.setdefault(one[0], []).append(one[1:])
    clocks = []
    for of_one in blocks.values():
        begin, begin_ns, end, end_ns = zip(*of_one, strict=True)
        clocks.append(1e3 * (max(end) - min(begin)) / (max(end_ns) - min(begin_ns)))
    return statistics.median(clocks)


def library_settings() -> dict[str, str]:
    """Settings that change what an FP32 product is computed in, read back from the libraries."""
    import os

    import torch

    found = {
        "torch.backends.cuda.matmul.allow_tf32": str(torch.backends.cuda.matmul.allow_tf32),
        "torch.backends.cudnn.allow_tf32": str(torch.backends.cudnn.allow_tf32),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
    }
    with contextlib.suppress(Exception):  # newer releases only
        found["torch.backends.cuda.matmul.fp32_precision"] = str(torch.backends.cuda.matmul.fp32_precision)
    for name in ("NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATION_STRATEGY"):
        found[name] = os.environ.get(name, "not set")
    return found
