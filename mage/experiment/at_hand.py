"""The evidence a note is about: loaded, or measured first where it stands for the machine at hand.

Nothing that measures is imported for an experiment that is only read.
"""

from __future__ import annotations

from collections.abc import Sequence

from mage import evidence
from mage.evidence.schema import Evidence
from mage.experiment import together


def is_here(experiment: str) -> bool:
    """Whether the experiment stands for the machine at hand, whichever that is."""
    return experiment == "here" or experiment.startswith("here-")


def obtain(experiment: str, operations: Sequence[str], implementations: Sequence[str], reads: str = "") -> Evidence:
    """The evidence that a note reads: an experiment called here-… is measured on this machine; any other is loaded.

    ``reads`` names another experiment whose evidence this one reads instead of its own. What the same command has
    measured here already is not measured again (``mage.experiment.together``). Raises RequestError for an unknown experiment,
    with the nearest one there is.
    """
    if reads or not is_here(experiment):
        return evidence.load(reads or experiment)
    if together.kept(experiment, operations, implementations):
        return evidence.load(experiment)
    from mage.experiment import measurement as measuring

    return measuring.obtain(experiment, operations, implementations)
