"""The commands `livi data list`, `get`, `verify` and `pack`: the image sets of the benchmarks."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from livi.cli.messages import say

DESCRIPTION = """\
The image sets that `livi bench mnist`, `fashion-mnist`, `cifar10` and `cifar100` read. They are kept in the folder that
LIVI_DATA_DIR names, otherwise in the folder livi of your cache. livi downloads each set from its authors; please mind
their terms of use.
"""
EXAMPLES = """\
examples:
  livi data list
  livi data get mnist fashion-mnist kmnist emnist-letters
  livi data verify
  livi data pack svhn tiny-imagenet     for a machine without scipy and Pillow
"""


def add_commands(commands: Any) -> None:
    data = commands.add_parser(
        "data",
        help="image sets: list, download, verify, pack",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).add_subparsers(required=True, metavar="command")
    for name, run, text, wanted in (
        ("list", _list, "all image sets, and which parts of them have been downloaded", "*"),
        ("get", _get, "download sets and check their md5; an interrupted download continues", "+"),
        ("verify", _verify, "compare downloaded sets with the published md5, and read them", "*"),
        ("pack", _pack, "write NAME/PART.npz files, which can be read without scipy or Pillow", "+"),
    ):
        command = data.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.set_defaults(command=run)
        words = "name of a set" + (" (default: all)" if wanted == "*" else "")
        command.add_argument("names", nargs=wanted, metavar="NAME", help=words)


def _list(chosen: argparse.Namespace) -> int:
    pictures, published = _module("pictures"), _module("published")
    folder = pictures.data_folder()
    print(f"in {folder}:")
    for name in _names(chosen):
        here = [part for part in pictures.SETS[name] if pictures.available(folder, name, part)]
        source = published.SOURCES[name]
        words = " and ".join(here) if here else f"not here, {source.megabytes} MB"
        print(f"  {name:<15} {words:<20} {source.citation}")
    return 0


def _get(chosen: argparse.Namespace) -> int:
    folder: Path = _module("pictures").data_folder()
    for name in _names(chosen):
        _module("download").get(folder, name, say)
    return 0


def _verify(chosen: argparse.Namespace) -> int:
    pictures, download = _module("pictures"), _module("download")
    folder, faults = pictures.data_folder(), 0
    for name in _names(chosen):
        here = [part for part in pictures.SETS[name] if pictures.available(folder, name, part)]
        found = download.verify(folder, name)
        for fault in found:
            print(f"{name}: {fault}")
        if not found:
            print(f"{name}: {'sound, ' + ' and '.join(here) if here else 'not here'}")
        faults += len(found)
    return 1 if faults else 0


def _pack(chosen: argparse.Namespace) -> int:
    pictures = _module("pictures")
    folder = pictures.data_folder()
    for name in _names(chosen):
        here = [part for part in pictures.SETS[name] if pictures.available(folder, name, part)]
        for part in here or ["test"]:  # reading a part that is not here raises an error that says what is missing
            print(pictures.pack(folder, name, part))
    return 0


def _names(chosen: argparse.Namespace) -> list[str]:
    known = list(_module("pictures").SETS)
    for name in chosen.names:
        if name not in known:
            chosen.parser.error(f"expected some of {', '.join(known)}, got {name!r}")
    return chosen.names or known


def _module(name: str) -> Any:
    return importlib.import_module(f"livi.experiments.datasets.{name}")
