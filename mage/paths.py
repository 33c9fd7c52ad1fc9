"""Where things are, never derived from the working directory.

``MAGE_ROOT`` names another tree laid out like this repository (own notebooks, params, kernels and
outputs); without it the tree is the checkout that this package was imported from.
"""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("MAGE_ROOT") or PACKAGE.parent).resolve()
NOTEBOOKS = ROOT / "notebooks"
PARAMS = ROOT / "params"
KERNELS = ROOT / "kernels"
OUTPUTS = ROOT / "outputs"
RETAINED = OUTPUTS / "retained"


def shown(path: Path) -> str:
    """``path`` as a message names it: relative to the tree where it lies in it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
