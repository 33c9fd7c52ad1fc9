"""Parameters: what a note declares, what a params file and the command line set, and every mistake found beforehand."""

import os
import re
import subprocess
import sys

import pytest

from mage import notes, paths
from mage.errors import RequestError
from mage.notes import params, vocabulary

TYPED = """\
rounds: int = 12  # rounds to take
scale: float = 0.5  # a factor
cold: bool = False  # whether the cache is cold
tile: list[int] = [64, 64]  # the tile's sides
word: str = "plain"  # any word
mode: str = "awaited"  # how calls are put on the device
cache: str = "warm"  # what is in the cache
"""


@pytest.fixture
def tree(tiny_tree, monkeypatch):
    """A tree with one note and one experiment, in which this process looks."""
    for name in ("notebooks", "params", "kernels", "outputs"):
        monkeypatch.setattr(paths, name.upper(), tiny_tree.root / name)
    monkeypatch.setattr(paths, "ROOT", tiny_tree.root)
    monkeypatch.setattr(paths, "RETAINED", tiny_tree.root / "outputs/retained")
    tiny_tree.note(parameters=TYPED)
    tiny_tree.params()
    return tiny_tree


def value(name: str, text: str):
    """What `-p name=text` comes to."""
    (request,) = params.requests("note-900", settings=[f"{name}={text}"])
    return request.values[name]


def refusal(*args, **options) -> str:
    with pytest.raises(RequestError) as refused:
        params.requests(*args, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


GIVEN = {
    "an int": ("rounds", "3", 3),
    "a negative int": ("rounds", "-3", -3),
    "octal as YAML 1.2 writes it": ("rounds", "0o17", 15),
    "a leading zero": ("rounds", "010", 10),
    "a float": ("scale", "1e3", 1000.0),
    "an int for a float": ("scale", "2", 2.0),
    "a bool": ("cold", "true", True),
    "a list": ("tile", "[16, 8]", [16, 8]),
    "a list without brackets": ("tile", "16,8", [16, 8]),
    "one item": ("tile", "16", [16]),
    "no item": ("tile", "[]", []),
    "words without brackets": ("operations", "gelu, triangle", ["gelu", "triangle"]),
    "no, which is a word": ("word", "no", "no"),
    "a quoted number": ("word", '"12"', "12"),
    "a word with an equals sign": ("word", "a=b", "a=b"),
    "a mode with a number": ("mode", "graph-20", "graph-20"),
}


@pytest.mark.parametrize("name, text, expected", GIVEN.values(), ids=GIVEN)
def test_a_value_is_read_as_its_type(tree, name, text, expected):
    found = value(name, text)
    assert found == expected and type(found) is type(expected)


WRONG = {
    "a bool for an int": ("rounds=true", "int", "bool"),
    "a float for an int": ("rounds=3.0", "int", "float"),
    "a word for an int": ("rounds=3 rounds", "int", "str"),
    "nothing for an int": ("rounds=", "int", "nothing"),
    "infinity": ("scale=.inf", "float", "inf"),
    "not a number": ("scale=.nan", "float", "nan"),
    "a number past the floats": ("scale=1" + "0" * 400, "float", "int"),
    "an int for a bool": ("cold=1", "bool", "int"),
    "YAML 1.1's yes": ("cold=yes", "bool", "yes"),
    "a number for a word": ("word=12", "str", '"12"'),
    "a date for a word": ("word=2026-01-01", "str", "date"),
    "a bool in a list": ("tile=[16, true]", r"list\[int\]", "bool"),
    "a nested list": ("tile=[[16]]", r"list\[int\]", "list"),
    "an unknown operation": ("operations=mathmul", "operation", "matmul"),
    "an unknown implementation": ("implementations=[triton, tritn]", "tritn", "triton"),
    "an unknown statistic": ("statistic=medain", "medain", "median"),
    "an unknown mode": ("mode=batch", "batch", "batch-N"),
    "a mode of no calls": ("mode=graph-0", "graph-0", "graph-N"),
    "the pattern itself": ("mode=batch-N", "batch-N", "awaited"),
    "an unknown cache state": ("cache=hot", "hot", "cold"),
    "an operation twice": ("operations=gelu,gelu", "operations", "twice"),
    "an unknown parameter": ("ronds=3", "ronds", "rounds"),
    "the note": ("note=note-900-tiny", "note", "rounds"),
    "no limit at all": ("cell_timeout_s=0", "cell_timeout_s", "0"),
}


@pytest.mark.parametrize("setting, wanted, got", WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_refused_with_what_is_wanted_and_what_came(tree, setting, wanted, got):
    message = refusal("note-900", settings=[setting])
    assert re.search(wanted, message) and re.search(got, message), message


def test_the_file_and_the_command_line_obey_the_same_vocabulary(tree):
    tree.params(operations=["gelu", "mathmul"])
    assert re.search("params/tiny.yaml.*mathmul.*matmul", refusal("note-900"))
    tree.params()
    tree.note(parameters=TYPED.replace('"warm"', '"hot"'))
    assert re.search("note-900-tiny.*hot.*cold", refusal("note-900")), "a default outside the vocabulary"


def test_a_setting_given_twice_is_refused(tree):
    assert "twice" in refusal("note-900", settings=["rounds=3", "rounds=4"])


def test_the_command_line_goes_before_the_file_and_the_file_before_the_default(tree):
    tree.params(rounds=5, scale=2.0)
    (request,) = params.requests("note-900-tiny", settings=["rounds=7"])
    assert (request.values["rounds"], request.values["scale"], request.values["cold"]) == (7, 2.0, False)


def test_limits_come_from_the_file_or_the_command_line(tree):
    (request,) = params.requests("900")
    assert (request.cell_timeout_s, request.note_timeout_s) == (params.CELL_TIMEOUT_S, params.NOTE_TIMEOUT_S)
    tree.params(cell_timeout_s=2.5)
    (request,) = params.requests("900", settings=["note_timeout_s=60"])
    assert (request.cell_timeout_s, request.note_timeout_s) == (2.5, 60)
    assert not {"cell_timeout_s", "note_timeout_s"} & set(request.values)


def test_a_directive_cannot_bring_yaml_1_1_back(tree):
    tree.params(text="%YAML 1.1\n---\nnote: note-900-tiny\nexperiment: tiny\nword: no\n")
    assert "directive" in refusal("note-900")


# --- which runs a request comes to -------------------------------------------------------------------------------


@pytest.fixture
def two(tree):
    """Two notes of one number, the first with two experiments."""
    tree.note("note-900-twin", parameters="words: list[str] = []  # words of the twin only\nrounds: int = 1  # rounds\n")
    tree.params("twin", note="note-900-twin")
    tree.params("tiny-b")
    return tree


def asked(*args, **options) -> list[tuple[str, str]]:
    return [(one.note.stem, one.experiment) for one in params.requests(*args, **options)]


def test_a_number_stands_for_all_its_notes_and_experiments(two):
    everything = [("note-900-tiny", "tiny"), ("note-900-tiny", "tiny-b"), ("note-900-twin", "twin")]
    assert sorted(asked("note-900")) == everything
    assert asked("note-900-twin") == asked("notebooks/note-900-twin.ipynb") == [everything[2]]
    assert asked("note-900", "tiny-b") == [everything[1]]


def test_a_parameter_of_one_note_alone_reaches_that_note(two):
    found = {one.note.stem: one for one in params.requests("note-900", settings=["words=a,b"])}
    assert found["note-900-twin"].values["words"] == ["a", "b"] and not found["note-900-tiny"].overrides


def test_a_parameter_that_two_notes_would_take_needs_a_full_name(two):
    message = refusal("note-900", settings=["rounds=3"])
    assert "note-900-tiny" in message and "note-900-twin" in message
    # One of them alone is asked for: nothing is left to guess.
    assert asked("note-900", "twin", ["rounds=3"]) == [("note-900-twin", "twin")]


def test_an_experiment_of_another_note_is_named_with_its_note(two):
    two.note("note-901-other")
    two.params("elsewhere", note="note-901-other")
    assert "note-901-other" in refusal("note-900", "elsewhere")


def test_a_params_file_with_a_misspelt_note_is_not_passed_over(two):
    two.params("lost", note="note-900-tinny")
    message = refusal("note-900")
    assert "lost.yaml" in message and "note-900-tiny" in message


def test_another_experiment_needs_evidence_and_an_output_of_its_own(tree):
    assert "tiny-x" in refusal("note-900", settings=["experiment=tiny-x"])
    evidence = tree.root / "outputs/retained/tiny-x/evidence.json"
    evidence.parent.mkdir()
    evidence.write_text("{}")
    (request,) = params.requests("note-900", settings=["experiment=tiny-x", "rounds=3"])
    assert request.experiment == "tiny-x" and request.params.experiment == "tiny"
    assert request.command == "python -m mage run note-900-tiny -e tiny -p experiment=tiny-x -p rounds=3"
    assert params.requests("note-900", settings=["experiment=here"])[0].experiment == "here"


def test_the_command_of_a_plain_run_is_a_make_target(tree):
    assert params.requests("note-900")[0].command == "make note-900 EXPERIMENT=tiny"


# --- the parameters cell -----------------------------------------------------------------------------------------


def declared(source: str) -> dict[str, notes.Parameter]:
    cell = {"cell_type": "code", "source": source, "metadata": {"tags": ["parameters"]}}
    return notes.declared_parameters([cell], "a note")


def test_a_declaration_has_name_type_default_and_meaning():
    source = "tile: list[int] = [\n    64,  # rows\n    -1,  # columns\n]\nword: str = 'a # b'  # a word\nbare: float = 1\n"
    found = declared(source)
    assert found["tile"] == notes.Parameter(name="tile", type="list[int]", default=[64, -1], meaning="rows columns")
    assert (found["word"].default, found["word"].meaning) == ("a # b", "a word")
    assert found["bare"].default == 1.0 and isinstance(found["bare"].default, float) and found["bare"].meaning == ""


def test_nothing_in_the_cell_is_executed(tmp_path):
    with pytest.raises(RequestError, match="literal"):
        declared(f"word: str = open({str(tmp_path / 'trace')!r}, 'w').name  # a trap\n")
    assert not (tmp_path / "trace").exists()


def test_the_list_of_notes_needs_nothing_installed(tree):
    """`make help` asks a bare Python for it: -S leaves out every installed package."""
    tree.note("note-901-untold", title="Untold")
    (tree.root / "notebooks/note-902-broken.ipynb").write_text("{")
    command = [sys.executable, "-S", "-m", "mage", "notes"]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(paths.PACKAGE.parent), "MAGE_ROOT": str(tree.root)}
    result = subprocess.run(command, env=env, capture_output=True, text=True)
    assert result.returncode == 0 and not result.stderr, result.stderr
    first, second, third = result.stdout.splitlines()
    assert "note-900" in first and "Tiny" in first and "tiny" in first
    assert "Untold" in second and "no experiment" in second and "note-902-broken" in third


def test_every_word_of_the_vocabulary_is_known():
    for name, words in vocabulary.KNOWN.items():
        assert all(vocabulary.knows(name, word.replace("-N", "-1")) for word in words)
    assert vocabulary.knows("any-other-parameter", "any word")
