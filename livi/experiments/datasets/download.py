"""Downloads that end whole or not at all: gone on with where a connection was cut, checked, then put in place."""

from __future__ import annotations

import fnmatch
import hashlib
import http.client
import os
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from livi.experiments.datasets.pictures import SETS, available, read
from livi.experiments.datasets.published import SOURCES, File
from livi.posterior.storage import replace_file

Say = Callable[[str], None]

ATTEMPTS = 5  # at each address, without a byte of progress in between
TIMEOUT = 60.0  # seconds without an answer
CHUNK = 2**20
_CUT = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


class DownloadError(OSError):
    """A file that could not be had from any of its addresses, with what each of them answered."""


def get(folder: Path, name: str, say: Say = print) -> None:
    """Have the files of a set in the folder: those that are there and whole are left alone.

    Raises:
        ValueError: there is no such set.
        DownloadError: a file could not be had; what has arrived is kept, and the next call goes on with it.
    """
    if name not in SOURCES:
        raise ValueError(f"data: expected one of {', '.join(SOURCES)}, got {name!r}.")
    for file in SOURCES[name].files:
        path = fetch(folder, file, say)
        if file.taken is not None:
            say(f"{path}: {take_out(path, folder, file.taken)} files taken out")


def verify(folder: Path, name: str) -> list[str]:
    """What is wrong with the files of a set that are there; empty where nothing is.

    Files as published must have the published md5, and what lies there in any way must be readable.
    """
    faults = []
    for file in SOURCES[name].files:
        path = folder / file.path
        if path.exists() and (found := md5_of(path)) != file.md5:
            faults.append(f"{path}: expected md5 {file.md5} as published, got {found}")
    for part in SETS[name]:
        try:
            if available(folder, name, part):
                read(folder, name, part)
        except (ValueError, ImportError) as error:
            faults.append(str(error))
    return faults


def fetch(folder: Path, file: File, say: Say = print, *, pause: float = 1.0) -> Path:
    """One published file, whole and checked, from the first of its addresses that gives it.

    What arrives is written to a .part file beside the target, which takes its place when size and md5 are right.

    Args:
        pause: seconds before the second attempt, doubled with each further one.
    """
    target = folder / file.path
    if target.exists() and md5_of(target) == file.md5:
        say(f"{target}: there already")
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    troubles = []
    for url in file.urls:
        try:
            _arrive(url, target, file.md5, say, pause)
            return target
        except (*_CUT, DownloadError) as error:
            troubles.append(f"{url}: {error}")
    raise DownloadError(f"{target}: expected it from {len(file.urls)} addresses, got none; {'; '.join(troubles)}.")


def take_out(archive: Path, folder: Path, taken: dict[str, str]) -> int:
    """Write the members of a .zip or .tar.gz that match a pattern; how many they are. Nothing else is unpacked.

    Raises:
        ValueError: no member matches.
    """
    count = 0
    for name, content in _members(archive, tuple(taken)):
        home = next(place for pattern, place in taken.items() if fnmatch.fnmatchcase(name, pattern))
        target = folder / home / PurePosixPath(name).name  # the last part of a name alone: no way out of the folder
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, iter(lambda content=content: content.read(CHUNK), b""))  # type: ignore[misc]
        count += 1
    if not count:
        raise ValueError(f"{archive}: expected members like {', '.join(taken)}, got none; get the file again.")
    return count


def md5_of(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _arrive(url: str, target: Path, md5: str, say: Say, pause: float) -> None:
    """The file from one address, in as many connections as it takes while they bring something."""
    part, failures = target.with_name(target.name + ".part"), 0
    known = _size(part)  # of an earlier call, or of another address
    while True:
        before = _size(part)
        try:
            _receive(url, part, say)
        except urllib.error.HTTPError as error:
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not before:
                raise
        except _CUT as error:
            failures = 0 if _size(part) > before else failures + 1
            if failures == ATTEMPTS:
                raise
            say(f"{target}: {error} after {_size(part):,} bytes; going on")
            time.sleep(pause * 2**failures)
            continue
        found = md5_of(part)
        if found == md5:
            break
        part.unlink()
        if not known:
            raise DownloadError(f"expected md5 {md5}, got {found}; what arrived is thrown away")
        say(f"{target}: expected md5 {md5}, got {found}; beginning again without the {known:,} bytes of before")
        known = 0
    os.replace(part, target)
    say(f"{target}: {_size(target):,} bytes, md5 as published")


def _receive(url: str, part: Path, say: Say) -> None:
    """One connection: what is missing of a file, or all of it where the server does not give parts.

    Raises:
        ConnectionError: it ended early.
    """
    have = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
            have = 0
        length = answer.headers.get("Content-Length")
        wanted = None if length is None else have + int(length)
        say(f"{url}: {'all' if not have else f'from byte {have:,}'}{'' if wanted is None else f' of {wanted:,}'}")
        with part.open("ab" if have else "wb") as file:
            shutil.copyfileobj(answer, file, CHUNK)
    if wanted is not None and _size(part) < wanted:
        raise ConnectionError(f"the connection ended {wanted - _size(part):,} bytes early")


def _members(archive: Path, patterns: tuple[str, ...]) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and contents of the files in an archive that match one of the patterns."""

    def wanted(name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as opened:
            for entry in opened.infolist():
                if wanted(entry.filename) and not entry.is_dir():
                    with opened.open(entry) as content:
                        yield entry.filename, content
        return
    with tarfile.open(archive) as packed:
        for member in packed:
            if wanted(member.name) and member.isfile() and (file := packed.extractfile(member)) is not None:
                yield member.name, file


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
