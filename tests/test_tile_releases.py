"""Other releases of the tile compiler: installed apart, counted with when they are there, retained when they are not."""

import importlib.metadata
import json
import zipfile

import pytest

from mage import paths, provenance
from mage.census import counting, offline, tile_census, tile_releases
from mage.errors import EvidenceError, MageError

RELEASES = {"13.3.36", "13.4.92", "13.5.37"}
NAME = ["product", "tile", "gpu", "release"]


# --- installing ---------------------------------------------------------------------------------------------------


def wheel(folder, name: str, files: dict[str, str]):
    """A wheel of version 1 with these files."""
    file = folder / f"{name}-1-py3-none-any.whl"
    info = f"{name}-1.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\nRequires-Dist: a-package-that-does-not-exist\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in files))
    return file


@pytest.fixture
def apart(tmp_path, monkeypatch):
    """An empty place for releases."""
    monkeypatch.setenv("MAGE_TILEIRAS", str(tmp_path / "apart"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path / "apart"


def test_a_release_is_installed_apart_once_and_not_into_the_environment(apart, tmp_path, monkeypatch):
    assembler = wheel(tmp_path, "mage_test_assembler", {"nvidia/cu13/bin/tileiras": "", "mage_test_assembler.py": ""})
    monkeypatch.setattr(tile_releases, "PACKAGES", {"9.9.9": (str(assembler),)})
    assert tile_releases.apart() == {}
    assert tile_releases.install() == ["9.9.9"]
    assert tile_releases.apart() == {"9.9.9": apart / "9.9.9" / "nvidia" / "cu13"}
    assert tile_releases.install() == []
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("mage_test_assembler")
    assert not any((apart / "9.9.9").rglob("*.pyc"))


def test_an_install_that_fails_leaves_nothing_and_says_why(apart, tmp_path, monkeypatch):
    monkeypatch.setattr(tile_releases, "PACKAGES", {"9.9.9": (str(tmp_path / "absent-1-py3-none-any.whl"),)})
    with pytest.raises(MageError, match="pip could not install .*absent-1"):
        tile_releases.install()
    assert list(apart.glob("*")) == []
    hollow = wheel(tmp_path, "mage_test_hollow", {"nvidia/cu13/bin/ptxas": ""})
    monkeypatch.setattr(tile_releases, "PACKAGES", {"9.9.9": (str(hollow),)})
    with pytest.raises(MageError, match="holds no tileiras"):
        tile_releases.install()
    assert list(apart.glob("*")) == []


def test_an_install_under_way_is_no_release(apart):
    for name in ("9.9.9", "9.9.8.123.part"):
        (apart / name / "nvidia" / "cu13" / "bin").mkdir(parents=True)
        (apart / name / "nvidia" / "cu13" / "bin" / "tileiras").touch()
    assert list(tile_releases.apart()) == ["9.9.9"]


def test_a_release_that_is_not_there_names_the_command(apart):
    with pytest.raises(MageError, match="make tile-compilers"):
        tile_releases.assemble("13.3.36", apart / "in", apart / "out", "sm_90")
    with pytest.raises(MageError, match="reads no bytecode"):
        tile_releases.bytecode_version("13.2.1")


# --- the retained census ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAGE_TILEIRAS", str(paths.ROOT / "no such folder"))
        return tile_census.census()


def test_without_other_releases_every_row_is_retained(kept):
    assert len(kept) == len(kept[NAME].drop_duplicates()) == 3 * len(tile_census.TILES) * 2 * 2
    assert set(kept.release) == RELEASES and set(kept.origin) == {"retained"}
    assert str(tile_census.path()) in provenance.used
    assert kept.refused.isna().all() and (kept["tensor-core"] == 0).all()


def test_the_older_releases_leave_the_product_unfused_and_the_newest_fuses_it(kept):
    mma, rank1 = (kept[kept["product"] == product] for product in ("ct.mma", "rank-1"))
    older = mma[mma.release != "13.5.37"]
    assert (older.FFMA == 0).all() and (older.FMUL >= older["multiply-adds"]).all() and (older.FADD >= older["multiply-adds"]).all()
    newest = mma[mma.release == "13.5.37"]
    assert (newest.FFMA > 0).all() and (newest.FMUL <= 8).all()
    assert (rank1.FFMA > 0).all() and (rank1.FADD == 0).all() and (rank1.FMUL <= 8).all()


def test_what_is_known_of_some_tiles(kept):
    rows = {tuple(row[name] for name in NAME): row for row in kept.to_dict("records")}
    published = rows["ct.mma", "32x128x32", "sm_89", "13.3.36"]
    # the published capture of this tile: 235 registers, 128 threads, 36864 shared bytes
    assert abs(published["registers"] - 235) <= 1 and (published["threads"], published["static shared"]) == (128, 36864)
    for tile in ("64x64x8", "128x64x8", "128x64x16"):
        for gpu in tile_census.ARCHS:
            assert {rows["rank-1", tile, gpu, release]["stack"] for release in RELEASES} == {0}
    assert rows["ct.mma", "64x64x32", "sm_90", "13.5.37"]["stack"] > 0


def test_the_retained_counts_are_those_of_the_kernel_file_as_it_is(kept):
    assert not kept.stale.any(), "kernels/cutile/matmul.py changed: python -m mage tile-compilers --retain"


def test_the_retained_counts_come_out_of_the_installed_compiler(kept):
    release = tile_releases.installed_version()
    if release not in RELEASES:
        pytest.skip(f"no retained counts of tileiras {release}")
    job = tile_census._jobs([tile_releases.INSTALLED])["rank-1", "64x64x8", "sm_90", release]
    (row,) = counting.compile_pool.rows([job])
    (old,) = kept[(kept[NAME] == ["rank-1", "64x64x8", "sm_90", release]).all(axis=1)].to_dict("records")
    assert {name: row[name] for name in tile_census._NUMBERS} == {name: old[name] for name in tile_census._NUMBERS}


@pytest.mark.parametrize("release", sorted(tile_releases.PACKAGES))
def test_the_retained_counts_come_out_of_the_releases_apart(kept, release):
    if release not in tile_releases.apart():
        pytest.skip(f"tileiras {release} is not installed (make tile-compilers)")
    job = tile_census._jobs([release])["ct.mma", "32x128x32", "sm_89", release]
    compiled = offline.compile(job)
    row = counting.compile_pool.rows([job])[0]
    assert compiled.job.release == release and release in compiled.compiler
    (old,) = kept[(kept[NAME] == ["ct.mma", "32x128x32", "sm_89", release]).all(axis=1)].to_dict("records")
    assert {name: row[name] for name in tile_census._NUMBERS} == {name: old[name] for name in tile_census._NUMBERS}


def test_with_a_release_at_hand_its_rows_are_computed_and_the_others_kept(kept, monkeypatch):
    if "13.4.92" not in tile_releases.apart():
        pytest.skip("tileiras 13.4.92 is not installed (make tile-compilers)")
    only = {"13.4.92": tile_releases.apart()["13.4.92"]}
    monkeypatch.setattr(tile_releases, "apart", lambda: only)
    monkeypatch.setattr(tile_census, "TILES", ("64x64x8",))
    frame = tile_census.census()
    here = frame[(frame.tile == "64x64x8") & (frame.release != "13.3.36")]
    assert set(here.origin) == {"computed here"}
    assert set(frame[frame.release == "13.3.36"].origin) == {"retained"}
    both = here.merge(kept, on=NAME, suffixes=("", " kept"))
    assert len(both) == len(here) and (both.registers == both["registers kept"]).all()


@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda record: record["rows"][0].__setitem__(5, 7), "sha256 is not that of its rows"),
        (lambda record: record["rows"][0].pop(), "columns are not those"),
        (lambda record: record.__setitem__("columns", record["columns"][::-1]), "columns are not those"),
        (lambda record: record.__setitem__("schema", "mage.tile-census/2"), "field schema"),
        (lambda record: record.__setitem__("colour", "red"), "field colour"),
        (lambda record: record.pop("sha256"), "field sha256"),
        (lambda record: record["rows"][0].__setitem__(5, 0.5), "field rows.0.5"),
    ],
)
def test_a_spoilt_file_is_refused_by_name_and_field(spoil, said, tmp_path, monkeypatch):
    record = json.loads(tile_census.path().read_text())
    spoil(record)
    monkeypatch.setattr(paths, "RETAINED", tmp_path)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    tile_census.path().parent.mkdir()
    tile_census.path().write_text(json.dumps(record))
    with pytest.raises(EvidenceError, match=said) as error:
        tile_census.load()
    assert "census/tile-releases.json" in str(error.value)


def test_a_missing_or_broken_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RETAINED", tmp_path)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    with pytest.raises(EvidenceError, match="cannot be read"):
        tile_census.load()
    tile_census.path().parent.mkdir()
    tile_census.path().write_text("{")
    with pytest.raises(EvidenceError, match="not JSON"):
        tile_census.load()


def test_retaining_asks_for_every_release(apart):
    with pytest.raises(EvidenceError, match=r"13\.3\.36, 13\.4\.92 is not installed"):
        tile_census.retain()
