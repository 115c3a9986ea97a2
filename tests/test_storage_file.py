"""One file: what comes back from it, and what damage to it is found."""

import ast
import os
import pickle
import random
import stat
import struct
from pathlib import Path

import pytest
import safetensors.torch
import torch
from support.saved_posteriors import same
from torch import nn

from livi.posterior import storage
from livi.posterior.storage import StorageError, file, read, write

# --- tensors and JSON in a file -------------------------------------------------------------------

TENSORS = {
    "scalar": torch.tensor(1.5),
    "empty": torch.zeros(0, 3),
    "flags": torch.tensor([True, False, True]),
    "counts": torch.tensor([2**62, -1]),
    "bytes": torch.arange(7, dtype=torch.uint8),
    "short": torch.randn(3, dtype=torch.float32).bfloat16(),
    "half": torch.randn(3, dtype=torch.float32).half(),
    "wave": torch.randn(2, dtype=torch.complex64).conj(),
    "strided": torch.arange(12.0).reshape(3, 4).T[::2],
    "odd": torch.tensor([float("nan"), float("-inf"), -0.0]),
    "ключ/key": torch.ones(1),
}


def test_tensors_and_json_come_back(path):
    meta = {"text": "öäü\ud800", "numbers": [1, 2.5, None, True], "nested": {"a": {}}}
    shared = torch.arange(6.0)
    tensors = TENSORS | {"tied": shared, "tied too": shared, "part": shared[2:], "weight": nn.Parameter(shared)}
    write(path, tensors, meta)
    again, found = read(path)
    assert found == meta
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(again[name], tensor.detach(), rtol=0, atol=0, equal_nan=True)
        assert again[name].dtype == tensor.dtype
    assert again["tied"].data_ptr() != again["tied too"].data_ptr()


@pytest.mark.parametrize("dtype", file._CODES, ids=str)
def test_other_readers_of_safetensors_agree(path, dtype):
    tensors = {"a": torch.arange(6).reshape(2, 3).to(dtype), "b": torch.ones(1).to(dtype), "c": torch.ones(3)}
    write(path, tensors, {})
    for name, tensor in safetensors.torch.load_file(path).items():
        assert tensor.dtype == tensors[name].dtype
        same(tensor.view(torch.uint8), tensors[name].view(torch.uint8))


def test_what_was_read_does_not_change_with_the_file(path):
    write(path, {"a": torch.ones(4)}, {})
    tensors, _ = read(path)
    with open(path, "r+b") as handle:
        handle.seek(-8, os.SEEK_END)
        handle.write(struct.pack("<d", 5.0))
    same(tensors["a"], torch.ones(4))


def test_long_json_does_not_burst_the_header(path, monkeypatch):
    monkeypatch.setattr(file, "_LONG", 1000)
    meta = {"history": [{"step": i, "name": "ö"} for i in range(500)]}
    write(path, {"a": torch.ones(2)}, meta)
    tensors, found = read(path)
    assert found == meta
    assert list(tensors) == ["a"]
    with open(path, "rb") as handle:
        assert int.from_bytes(handle.read(8), "little") < 1000


def test_an_existing_file_is_replaced_and_a_link_followed(path, tmp_path):
    write(path, {"a": torch.ones(1)}, {"version": 1})
    link = tmp_path / "latest"
    link.symlink_to(path.name)
    write(link, {"b": torch.ones(2)}, {"version": 2})
    assert link.is_symlink()
    tensors, meta = read(path)
    assert (list(tensors), meta) == (["b"], {"version": 2})
    assert sorted(os.listdir(tmp_path)) == ["latest", "posterior.safetensors"]


def test_a_new_file_has_the_usual_permissions(path, tmp_path):
    (tmp_path / "usual").touch()
    write(path, {}, {})
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)


@pytest.mark.parametrize(
    ("tensors", "meta", "match"),
    [
        (
            {"a": torch.ones(1, dtype=torch.complex128)},
            {},
            "dtype that safetensors has, got .*complex128.*view_as_real",
        ),
        ({"a": torch.ones(2).to_sparse()}, {}, "expected a dense tensor"),
        ({"a": torch.ones(2, device="meta")}, {}, "got meta"),
        ({"__metadata__": torch.ones(2)}, {}, "rename it"),
        ({"livi_meta": torch.ones(2)}, {}, "rename it"),
        ({"a\ud800": torch.ones(2)}, {}, "rename it"),
        ({}, {"a": float("nan")}, "plain JSON, got .*flatten_state"),
        ({}, {"a": object()}, "plain JSON, got .*flatten_state"),
        ({}, {"a": (1, 2)}, "str keys and lists, got .*flatten_state"),
        ({}, {"a": {1: 2}}, "str keys and lists, got .*flatten_state"),
    ],
)
def test_what_the_format_cannot_hold_is_refused_before_writing(path, tensors, meta, match):
    with pytest.raises(StorageError, match=match):
        write(path, tensors, meta)
    assert not path.exists()


def test_a_value_that_is_no_tensor_is_refused(path):
    with pytest.raises(TypeError, match=r"tensors\['a'\]: expected a torch.Tensor, got float"):
        write(path, {"a": 1.0}, {})


def test_a_place_that_cannot_hold_a_file_is_refused(tmp_path, path):
    with pytest.raises(StorageError, match=r"expected an existing folder, got .*nowhere; create it first"):
        write(tmp_path / "nowhere" / "a", {}, {})
    with pytest.raises(StorageError, match="expected the name of a file, got a folder"):
        write(tmp_path, {}, {})
    with pytest.raises(StorageError, match="expected the name of a file, got a folder or a device"):
        write(os.devnull, {}, {})  # replaced by a plain file, it would be missed


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="Permission denied"):
            write(tmp_path / "a", {}, {})
    finally:
        tmp_path.chmod(0o700)


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture
def sound(path):
    """The bytes of a sound file."""
    write(path, {"a": torch.arange(20.0), "b": torch.tensor(3)}, {"history": [{"step": 1.0, "bound": -12.5}]})
    return path.read_bytes()


def header_length(content):
    return 8 + int.from_bytes(content[:8], "little")


def complaint(path, content):
    path.write_bytes(content)
    with pytest.raises(StorageError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_file_cut_short_anywhere_is_found(path, sound):
    for length in range(len(sound)):
        message = complaint(path, sound[:length])
        assert "expected a complete file" in message or length < 9, (length, message)


def test_a_changed_byte_anywhere_is_found(path, sound):
    rng = random.Random(0)
    for position in range(len(sound)):
        changed = bytearray(sound)
        changed[position] ^= 1 << rng.randrange(8)
        message = complaint(path, bytes(changed))
        assert "expected" in message


def test_bytes_at_the_end_are_found(path, sound):
    assert "damaged" in complaint(path, sound + b"\0")


def pickled():
    return pickle.dumps({"a": list(range(100))})


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "got an empty file of 0 bytes"),
        (b"\x80", "got a pickle or an archive of 1 bytes"),
        (pickled(), "got a pickle or an archive"),
        (b"PK\x03\x04" + bytes(200), "got a pickle or an archive"),
        (b"step,bound\n1,2\n" * 20, "got something else"),
        (b'{"a": 1}' * 20, "got something else"),
        (struct.pack("<Q", 2) + b"{}", "safetensors without livi's metadata"),
        (struct.pack("<Q", 2) + b"{]", "damaged"),
        (struct.pack("<Q", 60_000) + b'{"a":' * 12_000, "damaged"),
        (struct.pack("<Q", 2**63) + b"{}", "got something else"),
    ],
    ids=["empty", "a byte", "pickle", "archive", "text", "json", "bare", "no json", "deep", "huge"],
)
def test_a_foreign_file_is_told_apart(path, content, match):
    assert match in complaint(path, content)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(StorageError, match="expected a file, got none of that name; check the path"):
        read(tmp_path / "none")
    with pytest.raises(StorageError, match="expected a file, got a folder"):
        read(tmp_path)


def test_weights_from_another_library_are_told_apart(path):
    safetensors.torch.save_file({"a": torch.ones(2)}, path, {"format": "pt"})
    with pytest.raises(StorageError, match="without livi's metadata; for bare weights, use safetensors"):
        read(path)


def test_a_newer_format_names_the_livi_that_wrote_it(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(file, "FORMAT", 7)
        patch.setattr(file, "__version__", "9.1.2")
        write(path, {}, {})
    with pytest.raises(
        StorageError, match=r"format 1 or older, got 7 written by livi 9\.1\.2; this is livi .*upgrade it"
    ):
        read(path)


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000])
def test_json_that_is_none_is_found(path, monkeypatch, text):
    monkeypatch.setattr(file, "_plain", lambda _: text)
    write(path, {}, {})
    with pytest.raises(StorageError, match=r"expected (a JSON object|JSON) in livi_meta"):
        read(path)


def test_no_code_can_come_out_of_a_file():
    """Neither pickle nor anything built on it, no eval, no import by name."""
    folder = Path(storage.__file__).parent
    sources = [*folder.glob("*.py"), folder.parents[1] / "spec.py"]
    assert len(sources) >= 5
    banned = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "importlib.import_module", "runpy"}
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & banned, source
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in {
                    "torch.load",
                    "torch.save",
                    "eval",
                    "exec",
                    "__import__",
                    "importlib.import_module",
                }, source


def test_a_file_that_is_replaced_stays_as_private_as_it_was(path):
    path.write_bytes(b"old")
    path.chmod(0o600)
    file.replace_file(path, [b"new"])
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
