"""The evidence record: what is read back is what was written, and a wrong file is refused by name."""

import json

import pytest

from mage import evidence, paths
from mage.errors import EvidenceError, RequestError

PUBLISHED = ["mage-001", "mage-002", "mage-003", "mage-004", "mage-006"]


@pytest.fixture
def record():
    return json.loads(evidence.path("mage-006").read_bytes())


def refused(record, where="some/evidence.json"):
    with pytest.raises(EvidenceError) as caught:
        evidence.parse(json.dumps(record).encode(), where)
    assert where in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("experiment", PUBLISHED)
def test_published_experiments_are_retained_and_valid(experiment):
    loaded = evidence.load(experiment)
    assert (loaded.experiment, loaded.origin) == (experiment, "published")
    assert loaded.device.name == "NVIDIA GeForce RTX 4090"
    assert {row.operation for row in loaded.results} == {"matmul", "gelu", "layernorm", "triangle", "neighbor"}
    assert evidence.path(experiment).is_relative_to(paths.RETAINED)


@pytest.mark.parametrize("experiment", PUBLISHED)
def test_writing_what_was_read_gives_the_same_bytes(experiment, tmp_path):
    file = evidence.path(experiment)
    digest = evidence.save(evidence.read(file), tmp_path / "deep" / "evidence.json")
    assert (tmp_path / "deep" / "evidence.json").read_bytes() == file.read_bytes()
    assert len(digest) == 64
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["evidence.json"]


def test_retained_evidence_lies_as_it_would_be_written_and_is_small():
    for file in sorted(paths.RETAINED.glob("*/evidence.json")):
        assert evidence.to_bytes(evidence.read(file)) == file.read_bytes(), file.parent.name
        assert file.stat().st_size <= 500_000, file.parent.name


def test_numbers_are_written_close_and_each_round_on_its_line():
    rounds = [[round(10 + number + 0.125 * sample, 3) for sample in range(8)] for number in range(4)]
    words = [f"a check that passed, number {number}" for number in range(8)]
    state = {"util_pct": [44.0, 36.0], "mhz": 1980.0}
    record = {"dims": [4, 768], "rounds_us": rounds, "long": rounds[0] * 9, "checks": words, "state": state}
    text = evidence.laid_out(record).decode()
    assert json.loads(text) == record
    lines = text.splitlines()
    assert ' "dims": [4,768],' in lines and ' "state": {"util_pct": [44.0,36.0], "mhz": 1980.0}' in lines
    assert [json.loads(line.rstrip(",")) for line in lines if line.startswith("[")] == rounds
    assert not any(" " in line for line in lines if line.startswith("["))
    (long,) = (line for line in lines if line.startswith(' "long"'))
    (checks,) = (line for line in lines if line.startswith(' "checks"'))
    assert ", " not in long and len(long) > 140 and checks.count("a check") == 8


def test_published_evidence_holds_means_and_no_samples():
    for experiment in PUBLISHED:
        for row in evidence.load(experiment).results:
            assert row.means is not None and not row.spans and not row.kernels


def test_an_unknown_field_is_named_with_its_file(record):
    record["results"][0]["kernal_us"] = 1.0
    assert "results.0.kernal_us" in refused(record)


def test_a_wrong_type_names_field_and_value(record):
    record["results"][2]["means"]["kernel_us"] = "fast"
    message = refused(record)
    assert "results.2.means.kernel_us" in message and "'fast'" in message


@pytest.mark.parametrize("time", [0, -3.5])
def test_a_time_that_is_not_positive_is_refused(record, time):
    record["stages"][0]["kernel_us"] = time
    assert "stages.0.kernel_us" in refused(record)


def test_nan_is_refused(record):
    text = json.dumps(record).replace("68.62", "NaN", 1)
    with pytest.raises(EvidenceError, match="NaN"):
        evidence.parse(text.encode(), "evidence.json")


def test_a_mean_outside_its_round_means_is_refused(record):
    record["results"][0]["means"]["span_us"] = 500.0
    assert "500.0" in refused(record)


def test_two_rows_of_one_name_are_refused(record):
    record["results"].append(record["results"][0])
    assert "matmul/pytorch" in refused(record)


def test_published_evidence_with_samples_is_refused(record):
    record["results"][0]["spans"] = [{"mode": "awaited", "cache": "warm", "rounds_us": [[1.0, 2.0]]}]
    assert "means only" in refused(record)


def test_a_newer_schema_is_refused_and_says_what_this_one_reads(record):
    record["schema"] = 99
    message = refused(record)
    assert "99" in message and "schema" in message


def test_a_time_without_zone_is_refused(record):
    record["when"] = "2026-09-11T00:40:17"
    assert "zone" in refused(record)


def test_a_file_that_is_not_json_is_refused():
    with pytest.raises(EvidenceError, match=r"broken\.json"):
        evidence.parse(b'{"schema": 1,', "broken.json")


def test_a_write_that_fails_leaves_nothing_behind(tmp_path):
    occupied = tmp_path / "evidence.json"
    occupied.mkdir()
    (occupied / "kept").write_text("good")
    with pytest.raises(OSError):
        evidence.save(evidence.load("mage-006"), occupied)
    assert (occupied / "kept").read_text() == "good"
    assert [entry.name for entry in tmp_path.iterdir()] == ["evidence.json"]


def test_an_unknown_experiment_gives_the_nearest_name():
    with pytest.raises(RequestError, match="mage-006"):
        evidence.load("mage-06")


def test_a_folder_that_names_another_experiment_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RETAINED", tmp_path)
    evidence.save(evidence.read(paths.OUTPUTS / "retained" / "mage-006" / "evidence.json"), tmp_path / "mage-777" / "evidence.json")
    with pytest.raises(EvidenceError, match="mage-777"):
        evidence.load("mage-777")
