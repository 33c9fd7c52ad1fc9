"""Known defects of the published kernels, as small changes to ours, so that a check can be shown to refuse them.

Each defect replaces one exact piece of a kernel file. If that piece is not there exactly once, the
defect no longer says what it claims to, and applying it is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from mage import kernels
from mage.errors import MageError


@dataclass(frozen=True, kw_only=True)
class Defect:
    """One defect: in the file of ``operation``, ``text`` becomes ``replacement``, which breaks ``stage``.

    ``stands_for`` says what went wrong in the published kernel, in a sentence.
    """

    operation: str
    stage: str
    text: str
    replacement: str
    stands_for: str

    def apply(self, source: str) -> str:
        """``source`` with the defect in it. MageError unless the replaced text is found exactly once."""
        found = source.count(self.text)
        if found != 1:
            raise MageError(
                f"defect of {self.operation} {self.stage}: the text it replaces is in the kernel file {found} times, "
                f"not once; bring it up to date: {self.text.strip().splitlines()[0]!r}"
            )
        return source.replace(self.text, self.replacement)


DEFECTS: dict[str, Defect] = {
    "pipeline-buffer-units": Defect(
        operation="matmul",
        stage="pipeline",
        text="""\
    const float* a_tile = a_buffers + buffer * A_BUFFER;
    const float* b_tile = b_buffers + buffer * B_BUFFER;
""",
        replacement="""\
    const float* a_tile = a_buffers + buffer * (A_BUFFER / 4);
    const float* b_tile = b_buffers + buffer * (B_BUFFER / 4);
""",
        stands_for="the offset of the second buffer, a count of 4-byte elements, was divided by four once more: "
        "buffer 1 was read from inside buffer 0",
    ),
    "pipeline-last-buffer": Defect(
        operation="matmul",
        stage="pipeline",
        text="const int last = (tiles - 1) % 2;",
        replacement="const int last = tiles % 2;",
        stands_for="the last tile was taken from buffer tiles % 2, which holds the tile before it, "
        "instead of (tiles - 1) % 2",
    ),
}
"""The two defects that the first published pipeline had, by name. It timed faster for them."""


def source(name: str) -> str:
    """The kernel file of defect ``name``, with the defect in it."""
    defect = DEFECTS[name]
    return defect.apply(kernels.source(f"cuda/{defect.operation}"))
