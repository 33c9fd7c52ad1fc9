"""What a device says of itself: name, driver, clocks, power, throttle reasons, and who else is on it."""

from __future__ import annotations

import contextlib
import os

from mage import provenance
from mage.evidence.schema import Device, DeviceState

THROTTLING = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Reasons for a lower clock that void a round, by NVML's bit."""
_OTHER_REASONS = {0x01: "idle", 0x02: "application clocks", 0x10: "sync boost", 0x100: "display clocks"}


class Gpu:
    """The current CUDA device, read through NVML; every reading is None where NVML does not answer."""

    def __init__(self):
        import torch

        self._torch = torch
        self._index = torch.cuda.current_device()
        self._nvml = self._handle = None
        self.why_not = None
        self.held = 0
        """Processes of this measurement's own, beside this one, that are held while it measures."""
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml, self._handle = pynvml, self._find(pynvml)
        except Exception as error:  # NVML's own classes, or no such package
            self.why_not = f"NVML does not answer: {error}"
        self.remember()

    def _find(self, nvml):
        uuid = getattr(self._torch.cuda.get_device_properties(self._index), "uuid", None)
        if uuid is not None:
            with contextlib.suppress(nvml.NVMLError):
                return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        return nvml.nvmlDeviceGetHandleByIndex(self._index)

    def _ask(self, question, *arguments):
        if self._handle is None:
            return None
        try:
            return getattr(self._nvml, question)(self._handle, *arguments)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def _processes(self) -> list[int] | None:
        found = self._ask("nvmlDeviceGetComputeRunningProcesses")
        return None if found is None else [process.pid for process in found]

    def remember(self) -> None:
        """The processes that are on the device now are those that ``load`` knows."""
        self._at_first = self._processes()

    def state(self) -> DeviceState:
        """Clocks in MHz, °C, W and throttle reasons at this moment."""
        nvml = self._nvml
        if nvml is None:
            return DeviceState()
        pstate = self._ask("nvmlDeviceGetPerformanceState")
        power = self._ask("nvmlDeviceGetPowerUsage")
        use = self._ask("nvmlDeviceGetUtilizationRates")
        mask = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if mask is None:
            mask = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return DeviceState(
            pstate=None if pstate is None else f"P{pstate}",
            temp_c=self._ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            sm_mhz=self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            mem_mhz=self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            power_w=None if power is None else power / 1e3,
            util_pct=() if use is None else (use.gpu,),
            throttle_reasons=reasons(mask or 0),
        )

    def load(self) -> str | None:
        """Why the device is not ours alone now: processes that were not there at ``remember``."""
        now = self._processes()
        if now is None or self._at_first is None or len(now) <= len(self._at_first):
            return None
        new = sorted(set(now) - set(self._at_first))
        return f"another process came to the device: {', '.join(map(str, new))}" if new else None

    def describe(self, before: DeviceState, during: DeviceState | None) -> Device:
        """The record's device."""
        from mage import cuda

        properties = self._torch.cuda.get_device_properties(self._index)
        driver = None
        if self._nvml is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                driver = self._nvml.nvmlSystemGetDriverVersion()
        machine = provenance.machine()
        return Device(
            kind="gpu",
            name=properties.name,
            arch=cuda.device_arch(self._index),
            driver=driver.decode() if isinstance(driver, bytes) else driver or machine["driver"],
            platform=f"{machine['platform']}, {machine['cpu']}, {machine['cores']} cores",
            memory_bytes=properties.total_memory,
            before=before,
            during=during,
            other_load=self._others(),
        )

    def _others(self) -> str:
        if self._at_first is None:
            return self.why_not or "NVML does not list processes"
        # In a container NVML may give process numbers of the host's, or none: ours is one of them where any is listed.
        others = max(0, len(self._at_first) - 1 - self.held)
        return f"{others} other compute processes at the start" if others else "no other compute process at the start"


def reasons(mask: int) -> tuple[str, ...]:
    """NVML's bit mask of clock event reasons in words."""
    return tuple(word for bit, word in {**_OTHER_REASONS, **THROTTLING}.items() if mask & bit)


def throttled(state: DeviceState | None) -> str | None:
    """The reason for which this state voids a round, or None."""
    bad = [word for word in (state.throttle_reasons if state else ()) if word in THROTTLING.values()]
    return f"throttled: {', '.join(bad)}" if bad else None


def cpu(threads: int) -> Device:
    """The record's device where the CPU computes."""
    machine = provenance.machine()
    load = os.getloadavg()[0]
    return Device(
        kind="cpu",
        name=machine["cpu"],
        platform=machine["platform"],
        other_load=f"load average {load:.1f} at the start, on {machine['cores']} cores; {threads} threads a call",
    )
