"""A prediction and its test: time of a deliberately worse tile over the kept one's, beside what its reads predict."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from mage.claims import reuse_test
from mage.claims.reuse_test import Measured
from mage.evidence.schema import Evidence
from mage.figures.canvas import LINE, MARGIN, SMALL, WIDTH, Page, drawing, plain, raised, vertical_grid, width
from mage.views import palette, rounding, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen

ROW = 17.0
QUANTITIES = {"kernel_us": "kernel time", "span_us": "span"}


@drawing
def worse_tile(records: Evidence | Sequence[Evidence], counts: pd.DataFrame, *, operations: Chosen = None) -> FigureView:
    """Time of the 32 × 32 tile over the kept 64 × 64 tile's, a measurement a row, and the ratio that its reads predict.

    ``counts``: a census that holds both kernels. A published row is a point; a session's has its 95 % interval.
    """
    rows = reuse_test.measured(records) if "matmul" in selection.words("operations", operations) else []
    title = "The worse tile: predicted and measured"
    predicted = reuse_test.predicted(counts) if rows else 0.0
    table = _table(rows, predicted)
    if not rows:
        return FigureView("worse-tile", None, title, "", table)
    page = Page()
    page.heading("Time, worse tile ÷ kept tile", "no difference at 1")
    names = [f"{row.evidence.experiment}, {QUANTITIES[row.quantity]}" for row in rows]
    left = MARGIN + max(map(width, names)) + 10
    wide, height = WIDTH - left - 40, ROW * len(rows)
    panel = page.panel(left, page.y, wide, height, ylim=(height, 0))
    high = max(predicted, *(row.high or row.ratio for row in rows)) + 0.08
    ticks = [tick for tick in (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2) if tick <= high]
    panel.set_xlim(1, high)
    vertical_grid(panel, ticks)
    panel.set_xticks(ticks, [plain(tick) for tick in ticks])
    panel.plot([predicted, predicted], [0, height], color=palette.INK, lw=1.4, dashes=(3, 2), zorder=2, clip_on=False)
    colour = palette.HAND.colour
    for place, (row, name) in enumerate(zip(rows, names, strict=True)):
        middle = ROW * (place + 0.5)
        page.text(MARGIN, raised(page.y + middle), name)
        if row.low is not None:
            panel.plot([row.low, row.high], [middle, middle], color=colour, lw=2, zorder=3, solid_capstyle="butt")
        panel.plot([row.ratio], [middle], "o", ms=6, mfc="white" if row.low is None else colour, mec=colour, mew=1.6, zorder=4)
        page.text(WIDTH - MARGIN - 34, raised(page.y + middle), f"{rounding.half_up(row.ratio, 3)}", fontweight="bold")
    page.y += height + SMALL * LINE + 5
    page.paragraph(f"dashed: {plain(predicted)}, predicted from the reads in the code")
    page.paragraph("hollow: published, no samples; filled: paired rounds of one session, bar: 95-percent interval")
    figure = page.finish(selection.source(list({row.evidence.experiment: row.evidence for row in rows}.values())))
    return FigureView("worse-tile", figure, title, _in_words(rows, predicted), table, note=_note())


def _note() -> str:
    return (
        "The worse tile reads more shared memory for the same multiply-adds. If that is what the kernel is short of, its time grows "
        "by the same factor."
    )


def _in_words(rows: list[Measured], predicted: float) -> str:
    said = "; ".join(
        f"{row.evidence.experiment}, {QUANTITIES[row.quantity]}, {rounding.half_up(row.ratio, 3)}"
        + (f" (95 % interval {rounding.half_up(row.low, 3)} to {rounding.half_up(row.high, 3)})" if row.low is not None else "")
        for row in rows
    )
    return f"Dots: time of the worse tile over the kept tile's, against a dashed line at {plain(predicted)}, the prediction. {said}."


def _table(rows: list[Measured], predicted: float) -> TableView:
    columns = ["Experiment", "Device", "Quantity", "Predicted", "Measured", "Low", "High", "Off the prediction"]
    records = [
        (
            row.evidence.experiment, row.evidence.device.name.removeprefix("NVIDIA "), QUANTITIES[row.quantity], predicted, row.ratio,
            row.low, row.high, (row.ratio / predicted - 1) * 100,
        )
        for row in rows
    ]  # fmt: skip
    ratios = dict.fromkeys(("Predicted", "Measured", "Low", "High"), ".3f")
    return TableView(
        "worse-tile-values", pd.DataFrame(records, columns=columns), "Ratio of the worse tile's time to the kept tile's",
        units={"Off the prediction": "%"}, formats={**ratios, "Off the prediction": "+.1f"}, row_heads=3,
        missing="published without samples",
    )  # fmt: skip
