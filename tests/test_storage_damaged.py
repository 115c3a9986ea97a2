"""Files of every kind, damaged at random and signed again: a miniature of scripts/damaged_files.py."""

from pathlib import Path

import pytest
import torch
from support.saved_posteriors import affine, network
from support.table_commands import run_python

from livi.posterior.storage import StorageError, load_parts, read, save_posterior, write

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to limit memory")
def test_damaged_files_are_refused_clearly_or_work():
    sys_path = [str(ROOT / "scripts"), str(ROOT)]
    script = f"import sys; sys.path[:0] = {sys_path!r}; sys.argv[1:] = ['--tries', '270', '--seed', '7']\n"
    done = run_python(script + "import damaged_files; sys.exit(damaged_files.main())")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    counts, _, megabytes = done.stdout.strip().splitlines()[-1].partition("; ")
    refused = int(counts.partition(": ")[2].partition(" refused")[0].replace(",", "").split()[-1])
    assert refused > 100
    assert int(megabytes.split()[0].replace(",", "")) < 1000


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64, torch.complex64])
def test_a_tensor_of_another_precision_than_its_neighbours_is_refused(tmp_path, dtype):
    path = tmp_path / "small.livi"
    save_posterior(path, affine())
    tensors, meta = read(path)
    name = next(name for name in tensors if name.startswith("sampler") and tensors[name].is_floating_point())
    write(path, tensors | {name: tensors[name].to(dtype)}, meta)
    with pytest.raises(StorageError, match=r"where torch\.float\d\d belongs|where torch\.\w+ belongs"):
        load_parts(path, network())
