"""What every part of the evidence record is made of: units, closed models, the state of a device."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Microseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Operation = Literal["matmul", "gelu", "layernorm", "triangle", "neighbor"]
Quantity = Literal["kernel_us", "span_us"]


class Record(BaseModel):
    """Base of every part of the record: closed, immutable, plain data."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DeviceState(Record):
    """What the driver reported at one moment; a field that was not read is absent."""

    pstate: str | None = None
    temp_c: float | None = None
    sm_mhz: float | None = None
    mem_mhz: float | None = None
    power_w: float | None = None
    util_pct: tuple[float, ...] = ()
    throttle_reasons: tuple[str, ...] = ()
