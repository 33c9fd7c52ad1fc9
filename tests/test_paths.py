"""Files are written whole or not at all, whoever writes them."""

import stat

import pytest

from mage import paths


def test_a_file_is_new_or_as_it_was_and_nothing_is_left_beside_it(tmp_path):
    file = tmp_path / "made" / "on the way" / "record.json"
    paths.write_whole(file, b"first", lasting=True)
    with pytest.raises(TypeError):
        paths.write_whole(file, "not bytes")
    assert file.read_bytes() == b"first" and list(file.parent.iterdir()) == [file]
    paths.write_whole(file, b"second")
    assert file.read_bytes() == b"second" and list(file.parent.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644, "readable by others, as what git checks out is"


def test_a_folder_that_cannot_be_made_is_an_error_of_the_system(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        paths.write_whole(tmp_path / "file" / "record.json", b"")
