"""Downloads of published files: continued after a cut connection, checked, and only then put in place."""

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

ATTEMPTS = 5  # in a row at one address that bring no further byte
TIMEOUT = 60.0  # seconds
CHUNK = 2**20
_CONNECTION_ERRORS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


class DownloadError(OSError):
    """No address of a file gave it; the message says why for each of them."""


def get(folder: Path, name: str, say: Say = print) -> None:
    """Download the files of a set to the folder, except those that are there and whole, and extract what is needed.

    Raises:
        ValueError: there is no such set.
        DownloadError: a file could not be downloaded; the next call continues with what has arrived.
    """
    if name not in SOURCES:
        raise ValueError(f"data: expected one of {', '.join(SOURCES)}, got {name!r}.")
    for file in SOURCES[name].files:
        path = fetch(folder, file, say)
        if file.taken is not None:
            say(f"{path}: {extract(path, folder, file.taken)} files taken out")


def verify(folder: Path, name: str) -> list[str]:
    """The faults of the files of a set that are there.

    Published files must have the published md5, and whatever `pictures.read` would read must be readable.
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
    """Download one published file from the first of its addresses that gives it, and check it.

    It is written to a .part file next to the target, which is renamed when the md5 is right.

    Args:
        pause: seconds to wait after a cut connection, doubled with each one in a row that brought nothing.
    """
    target = folder / file.path
    if target.exists() and md5_of(target) == file.md5:
        say(f"{target}: there already")
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    troubles = []
    for url in file.urls:
        try:
            _download(url, target, file.md5, say, pause)
            return target
        except (*_CONNECTION_ERRORS, DownloadError) as error:
            troubles.append(f"{url}: {error}")
    raise DownloadError(f"{target}: expected it from {len(file.urls)} addresses, got none; {'; '.join(troubles)}.")


def extract(archive: Path, folder: Path, taken: dict[str, str]) -> int:
    """Write the members of a .zip or .tar.gz that match a pattern, and no others; return how many.

    Args:
        taken: folders to write to, by pattern; see `File`.

    Raises:
        ValueError: no member matches.
    """
    count = 0
    for name, content in _members(archive, tuple(taken)):
        home = next(target for pattern, target in taken.items() if fnmatch.fnmatchcase(name, pattern))
        target = folder / home / PurePosixPath(name).name  # without its folders, which could lead elsewhere
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


def _download(url: str, target: Path, md5: str, say: Say, pause: float) -> None:
    """Download a file from one address, over as many connections as it takes while they bring something."""
    part, failures = target.with_name(target.name + ".part"), 0
    earlier = _size(part)  # bytes of an earlier call, or from another address
    while True:
        before = _size(part)
        try:
            _receive(url, part, say)
        except urllib.error.HTTPError as error:
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not before:
                raise
        except _CONNECTION_ERRORS as error:
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
        if not earlier:
            raise DownloadError(f"expected md5 {md5}, got {found}; what arrived is thrown away")
        say(f"{target}: expected md5 {md5}, got {found}; starting again without the earlier {earlier:,} bytes")
        earlier = 0
    os.replace(part, target)
    say(f"{target}: {_size(target):,} bytes, md5 as published")


def _receive(url: str, part: Path, say: Say) -> None:
    """Receive the missing bytes of a file over one connection, or all of it if the server does not send parts.

    Raises:
        ConnectionError: the connection ended early.
    """
    start = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
            start = 0
        length = answer.headers.get("Content-Length")
        wanted = None if length is None else start + int(length)
        say(f"{url}: {'all' if not start else f'from byte {start:,}'}{'' if wanted is None else f' of {wanted:,}'}")
        with part.open("ab" if start else "wb") as file:
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
