"""Where things are, never derived from the working directory.

``MAGE_ROOT`` names another tree laid out like this repository (own notebooks, params, kernels and
outputs); without it the tree is the checkout that this package was imported from.
"""

import os
import tempfile
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


def write_whole(file: Path, content: bytes, *, lasting: bool = False) -> None:
    """Write ``file`` in one step: whoever reads it sees the old content or the new one, and an error leaves the old.

    Its folder is made. ``lasting``: the content is on the disk when this returns, for what cannot be made again.
    Raises OSError.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:40]}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            if lasting:
                stream.flush()
                os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise
