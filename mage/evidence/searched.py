"""Searches kept apart: one record a GPU holds every candidate of every search, and a session of that GPU is read with it.

Searches are larger than the session that is measured with what they chose, so they are an experiment of their own,
``<gpu>-tune``.
"""

from __future__ import annotations

from mage import evidence
from mage.evidence.schema import Evidence
from mage.kernels import tuned

ENDING = "-tune"


def experiment(device_name: str) -> str:
    """``NVIDIA H200`` -> ``h200-tune``: what the searches of a GPU are called."""
    return tuned.slug(device_name).removeprefix("nvidia-") + ENDING


def of(device_name: str) -> Evidence | None:
    """The retained searches of a device; None where there are none."""
    for name in evidence.experiments():
        if name.endswith(ENDING):
            kept = evidence.load(name)
            if kept.device.name == device_name:
                return kept
    return None


def with_searches(record: Evidence) -> Evidence:
    """``record`` with the retained searches of its device, if it has none of its own and there are any."""
    if record.searches or record.device.kind != "gpu" or record.origin == "published":
        return record
    kept = of(record.device.name)
    return record.model_copy(update={"searches": kept.searches}) if kept else record
