"""A quoted number either stands in the evidence or stops the note."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mage import claims, evidence, paths
from mage.claims import Quotes
from mage.errors import ClaimError, RequestError
from mage.evidence import lookup

THIN = "\u202f"


@pytest.fixture(scope="module")
def q():
    return Quotes("mage-001", "mage-002", "mage-003", "mage-004", "mage-006")


@pytest.fixture
def retained(tmp_path, monkeypatch):
    """A copy of mage-006 whose numbers a test may change: ``retained(path_in_json, value)``."""
    source = json.loads(evidence.path("mage-006").read_text())
    file = tmp_path / "outputs" / "retained" / "mage-006" / "evidence.json"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "RETAINED", file.parent.parent)

    def change(section, row, field, value):
        source[section][row][field] = value
        file.write_text(json.dumps(source))
        return Quotes("mage-006")

    return change


def test_quotes_what_the_evidence_says(q):
    assert q("mage-006 stages[matmul/pipeline].kernel_us", "68.62") == "68.62"
    assert q("mage-001 results[matmul/rust-oxide].means.kernel_us", "343.99") == "343.99"
    assert q("mage-006 attempts[2].value_us[1]", "13.7") == "13.7"
    assert q("mage-004 launch_modes[graph/32x128x32/gelu/rust-cutile].graph_25_us", "7.77") == "7.77"
    assert q("mage-004 search.trials[32x128x32/runoff].repetitions", "342") == "342"
    assert q("mage-004 correctness.max_abs_error[hand_tile].matmul", "1.5e-5") == "1.5e-5"
    assert q("mage-006 software.triton", "3.8.0") == "3.8.0"


def test_sets_units_off_by_a_space_that_does_not_break(q):
    assert q("mage-006 stages[matmul/pipeline].kernel_us", "68.62 µs") == f"68.62{THIN}µs"
    assert q("mage-006 stages[matmul/pipeline].shared_bytes", "33792 bytes") == "33792\u00a0bytes"
    tile = "mage-004 results[matmul/rust-cutile].means.kernel_us"
    assert q.ratio(tile, "mage-003 results[matmul/rust-oxide].means.kernel_us", "1.6×") == "1.6×"
    drift = "mage-003 drift[gelu/rust-oxide]"
    assert q.change_pct(f"{drift}.before_us", f"{drift}.after_us", "-2.1 %") == f"−2.1{THIN}%"


def test_a_wrong_number_is_one_line_with_claim_place_and_both_values(q):
    with pytest.raises(ClaimError) as caught:
        q("mage-006 stages[matmul/tiled].kernel_us", "345.99")
    message = str(caught.value)
    for part in ("345.99", "343.99", "stages[matmul/tiled].kernel_us", "outputs/retained/mage-006/evidence.json"):
        assert part in message
    assert "\n" not in message


def test_changed_evidence_is_caught(retained):
    claim = ("mage-006 stages[matmul/tiled].kernel_us", "343.99")
    assert retained("stages", 0, "kernel_us", 343.99)(*claim) == "343.99"
    with pytest.raises(ClaimError, match=r"claim 343\.99: .*evidence\.json\) is 344\.99"):
        retained("stages", 0, "kernel_us", 344.99)(*claim)


@pytest.mark.parametrize(
    ("value", "printed", "right"),
    [
        ("10.325", "10.33", True),  # half up, as decimals: the binary float lies below the half
        ("11.415", "11.42", True),
        ("10.055", "10.05", True),  # one last digit low
        ("469.8", "469", True),
        ("469.8", "468", False),
        ("68.62", "68.60", False),
        ("68.62", "68.6", True),
        ("1.48e-05", "1.5e-5", True),
        ("1.48e-05", "1.7e-5", False),
    ],
)
def test_agreement_is_decimal_half_up_within_one_last_digit(value, printed, right):
    assert claims.agrees(Decimal(value), printed) is right


def test_rounding_is_half_up_on_the_number_the_file_writes():
    assert str(claims.rounded(claims.decimal(10.325), "0.00")) == "10.33"
    assert str(claims.rounded(claims.decimal(2.5), "0")) == "3"


@given(st.decimals(min_value="0.001", max_value="9999", places=3), st.integers(0, 3))
def test_a_number_printed_by_rounding_always_agrees(value, places):
    printed = str(claims.rounded(value, f"0.{'0' * places}" if places else "0"))
    assert claims.agrees(value, printed)
    step = Decimal(1).scaleb(-places)
    assert not claims.agrees(value, str(Decimal(printed) + 2 * step))


def test_counts_must_be_equal(q):
    path = "mage-006 results[triangle/pytorch].launches"
    assert q(path, "3") == "3"
    with pytest.raises(ClaimError):
        q(path, "2")
    assert q.count("mage-004 tile_sweep.rows", "12") == "12"
    with pytest.raises(ClaimError):
        q.count("mage-004 tile_sweep.rows", "13")
    assert q.product("mage-006 method.rounds", "mage-006 method.iterations", "300") == "300"


def test_a_unit_must_be_the_fields_own(q):
    with pytest.raises(ClaimError, match="in µs, not in %"):
        q("mage-006 stages[matmul/pipeline].kernel_us", "68.62 %")
    with pytest.raises(ClaimError, match="plain number"):
        q("mage-006 stages[matmul/pipeline].registers", "96 µs")
    with pytest.raises(ClaimError, match="known unit"):
        q("mage-006 stages[matmul/pipeline].kernel_us", "68.62 ms")


def test_ratios_and_changes_are_computed_from_the_evidence(q):
    sweep = "mage-004 tile_sweep.rows[{}].span_us"
    assert q.ratio(sweep.format("128x128x8"), sweep.format("128x64x8"), "2.3×") == "2.3×"
    with pytest.raises(ClaimError, match=r"2\.33"):
        q.ratio(sweep.format("128x128x8"), sweep.format("128x64x8"), "2.6×")
    gelu = "results[gelu/rust-oxide].means.kernel_us"
    assert q.change_pct(f"mage-003 {gelu}", f"mage-006 {gelu}", "1.6 %") == f"1.6{THIN}%"
    with pytest.raises(ClaimError):
        q.change_pct(f"mage-003 {gelu}", f"mage-006 {gelu}", "1.9 %")


def test_a_range_is_the_smallest_and_the_largest(q):
    band = "mage-006 controls[matmul/rust-oxide/kernel_us/band].band_us"
    assert q.range(band, "68.35–68.68 µs") == f"68.35–68.68{THIN}µs"
    cublas = [f"mage-00{n} results[matmul/pytorch].means.kernel_us" for n in (1, 2, 3, 6)]
    assert q.range(cublas, "44.03–66.22") == "44.03–66.22"
    with pytest.raises(ClaimError, match=r"mage-003 .*44\.028"):
        q.range(cublas, "45.03–66.22")
    with pytest.raises(ClaimError, match=r"mage-006 .*66\.223"):
        q.range(cublas, "44.03–64.22")


def test_reads_per_multiply_add_follow_from_the_thread_tile(q):
    assert q.reads_per_multiply_add(1, 1, 1, "2") == "2"
    assert q.reads_per_multiply_add(4, 4, 1, "0.5") == "0.5"
    assert q.reads_per_multiply_add(2, 4, 1, "0.75") == "0.75"
    assert q.reads_per_multiply_add(4, 4, 4, "0.125") == "0.125"
    with pytest.raises(ClaimError):
        q.reads_per_multiply_add(4, 4, 4, "0.126")


def test_padding_idles_a_quarter_of_the_lanes(q):
    width = "mage-004 results[layernorm/rust-cutile].dims[1]"
    assert q.idle_lanes(width, "25 %") == f"25{THIN}%"
    with pytest.raises(ClaimError):
        q.idle_lanes(width, "33 %")


def test_wins_draws_and_losses_are_counted(q):
    tile, hand = "mage-004 results[{}/rust-cutile].means.kernel_us", "mage-003 results[{}/rust-oxide].means.kernel_us"
    operations = "matmul gelu layernorm triangle neighbor"
    assert q.tally(tile, hand, operations, 10, wins=1, draws=1, losses=3) == "wins 1, draws 1, loses 3"
    with pytest.raises(ClaimError, match="wins 1, draws 0, loses 4"):
        q.tally(tile, hand, operations, 5, wins=1, draws=1, losses=3)


def test_a_published_table_is_checked_cell_by_cell(q):
    path, columns = "mage-006 results[{row}/{column}].means.kernel_us", "pytorch triton rust-oxide"
    good = {"matmul": "66.2 100.8 68.6", "gelu": "18.3 7.7 11.2"}
    shown = q.published("Kernel time", path, columns, good)
    assert "6 values: each agrees" in shown and ">100.8<" in shown and ">11.2<" in shown and ">Bias + GELU<" in shown
    with pytest.raises(ClaimError, match=r"results\[gelu/triton\]"):
        q.published("Kernel time", path, columns, {**good, "gelu": "18.3 7.9 11.2"})
    with pytest.raises(ValueError):
        q.published("Kernel time", path, columns, {**good, "gelu": "18.3 7.7"})


def test_a_mean_is_computed_from_the_samples(q):
    path = "mage-003 paired[0].samples_us[two warps per row]"
    assert q.mean(path, "12.69 µs") == f"12.69{THIN}µs"
    with pytest.raises(ClaimError, match=r"12\.692"):
        q.mean(path, "12.67")


def test_a_disagreement_shows_both_values_marked(q):
    before, after = (f"mage-00{n} results[neighbor/rust-oxide].means.kernel_us" for n in (3, 6))
    text = q.disagree("0.0 %", q.change_pct(before, after, "0.09 %"), "rounded inputs hide it")
    assert 'class="mage-disagreement"' in text
    assert f"published: 0.0{THIN}%" in text and f"gives 0.09{THIN}%" in text and "rounded inputs hide it" in text


def test_a_disagreement_that_is_none_fails(q):
    with pytest.raises(ClaimError, match="reported as contradicted"):
        q.disagree("0.1 %", q.stated("0.09 %"), "no longer true")
    with pytest.raises(ClaimError, match="reported as contradicted"):
        q.disagree("7–10 %", q.stated("7.2–9.8 %"), "no longer true")
    assert "7–10" in q.disagree("7–10 %", q.stated("6.4–12.3 %"), "wider")


def test_a_value_reported_absent_must_be_absent(q):
    listed = "mage-006 controls[layernorm/triton/kernel_us/band].captures_us"
    assert "not among the 6 values" in q.absent(listed, "8.19 µs", "no capture listed returned it")
    with pytest.raises(ClaimError, match="reported as absent"):
        q.absent(listed, "8.06 µs", "no capture listed returned it")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("mage-006 stages[matmul/pipelin].kernel_us", "did you mean 'matmul/pipeline'"),
        ("mage-006 stages[matmul/pipeline].kernel_ms", "did you mean 'kernel_us'"),
        ("mage-006 stages[matmul/pipeline].kernel_us[0]", "one value"),
        ("mage-006 attempts[9].value_us", "5 rows"),
        ("mage-006 tile_sweep.rows", "absent"),
        ("mage-006 search", "absent"),
        ("mage-006 results[]", "cannot be read"),
        ("mage-006", "not a path"),
        ("mage-005 results", "not among"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_stops(q, path, hint):
    with pytest.raises(ClaimError, match=hint.replace("[", r"\[")) as caught:
        q(path, "1")
    assert "\n" not in str(caught.value)


def test_an_ambiguous_row_is_refused():
    record = evidence.load("mage-003")
    twice = record.model_copy(update={"stages": record.stages * 2})
    with pytest.raises(lookup.PathError, match="2 rows named"):
        lookup.find(twice, "stages[matmul/tiled].kernel_us")


def test_an_unknown_experiment_is_a_wrong_request():
    with pytest.raises(RequestError, match="did you mean"):
        Quotes("mage-06")
