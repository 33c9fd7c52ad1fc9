"""A params file may name the hand-written stages whose rows an experiment keeps."""

import pytest

from mage.errors import RequestError
from mage.experiment import shapes
from mage.notes import params


def test_stages_are_read_and_a_misspelt_one_is_named():
    assert shapes.parse_stages({"matmul": ["quads", "banks"]}, "params/x.yaml") == {"matmul": ("quads", "banks")}
    with pytest.raises(RequestError, match="params/x.yaml: stages: matmul has no stage 'bank'; there is: tiled"):
        shapes.parse_stages({"matmul": ["bank"]}, "params/x.yaml")
    with pytest.raises(RequestError, match="must map operations to lists of stages"):
        shapes.parse_stages(["quads"], "params/x.yaml")


def test_only_those_rows_are_kept(monkeypatch):
    from types import SimpleNamespace

    from mage.experiment import measurement

    cases = [
        SimpleNamespace(operation=operation, implementation=name, variant=variant, at=None)
        for operation, name, variant in (
            ("matmul", "cuda", "tiled"), ("matmul", "cuda", "quads"), ("matmul", "triton", "fixed"), ("gelu", "cuda", "elementwise"),
        )
    ]  # fmt: skip
    asked = measurement.Asked(
        experiment="h200-x", operations=("matmul", "gelu"), implementations=("triton", "cuda"), stages={"matmul": ("quads",)}
    )
    kept = measurement._rows(SimpleNamespace(cases=cases), asked)
    assert [(one.operation, one.variant) for one in kept] == [("matmul", "quads"), ("matmul", "fixed"), ("gelu", "elementwise")]


def test_the_retained_comparison_names_its_stages():
    file = params.load(params.paths.PARAMS / "h200-004.yaml")
    assert file.stages["matmul"] == ("quads", "banks")
    assert "stages" not in file.values


def test_an_experiment_that_reads_another_is_not_measured_itself():
    from mage.experiment import measurement

    with pytest.raises(RequestError, match="h200-001 reads the evidence of h200-006: measure that instead"):
        measurement.asked(["h200-001"])


def test_a_misspelt_variant_among_the_rows_of_shapes_is_named():
    assert shapes.parse_rows(["pytorch", "triton:tuned", "cuda:banks"], "x.yaml") == ("pytorch", "triton:tuned", "cuda:banks")
    with pytest.raises(RequestError, match="x.yaml: shape_rows: triton has no variant 'tunde'; there is fixed, tuned"):
        shapes.parse_rows(["triton:tunde"], "x.yaml")
