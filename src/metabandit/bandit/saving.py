"""One file, safe to load: a zip of plain .npy arrays and one JSON header. Nothing in it is ever executed.

header.json   {"format": "metabandit", "version": 1, ...}: everything that is not an array
NAME.npy      the arrays, little-endian, without pickle
"""

from __future__ import annotations

import glob
import os
import secrets
import stat
import struct
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from metabandit.errors import DamagedFile, InvalidInput

FORMAT, VERSION = "metabandit", 1
# What reading a damaged archive can raise: a flipped bit may claim encryption, another compression, a huge array.
DAMAGE = (
    zipfile.BadZipFile, zlib.error, msgspec.DecodeError, KeyError, EOFError, ValueError, RuntimeError, MemoryError,
    OverflowError, OSError, struct.error,
)  # fmt: skip
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same state gives the same bytes, whenever it is saved


def write(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write arrays and plain data to one file, atomically: readers see the old file or the whole new one."""
    target = Path(os.path.realpath(path))  # a link stays a link
    if target.is_dir():
        raise InvalidInput("path", path, "the name of a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent}: no such folder")
    _sweep(target)
    name = target.parent / f".{target.name}.{secrets.token_hex(8)}"
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        if target.exists():  # who may read the file is not ours to change
            os.chmod(name, stat.S_IMODE(target.stat().st_mode))
        with os.fdopen(handle, "wb") as file:
            pack(file, content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
    _sync_folder(target.parent)


def pack(file: Any, content: dict[str, Any]) -> None:
    """Write arrays and plain data to an open file."""
    arrays = {name: value for name, value in content.items() if isinstance(value, np.ndarray)}
    plain = {name: _plain(value) for name, value in content.items() if name not in arrays}
    header = msgspec.json.encode({"format": FORMAT, "version": VERSION, **plain})
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("header.json", EPOCH), header)
        for key, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{key}.npy", EPOCH), "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.ascontiguousarray(array), allow_pickle=False)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What write() wrote; DamagedFile when it is not such a file, of another version, or not intact."""
    with open(path, "rb") as file:  # what cannot be opened is no damaged file
        return unpack(file, path)


def unpack(file: Any, path: Any) -> dict[str, Any]:
    """What pack() wrote to an open file; `path` is what errors call it."""
    try:
        return _read(path, file)
    except DamagedFile:
        raise
    except DAMAGE as error:
        raise DamagedFile(f"{path}: not a metabandit file, or damaged ({error})") from error


def _read(path: Any, file: Any) -> dict[str, Any]:
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist())
        if packed or len(set(names)) < len(names):  # what is not packed cannot burst
            raise DamagedFile(f"{path}: not written by metabandit")
        content: dict[str, Any] = msgspec.json.decode(archive.read("header.json"))
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise DamagedFile(f"{path}: not a metabandit file")
        if (version := content.pop("version", None)) != VERSION:
            raise DamagedFile(f"{path}: format version {version}; this release reads version {VERSION}")
        for name in names:
            if name.endswith(".npy"):
                with archive.open(name) as part:
                    content[name[:-4]] = np.lib.format.read_array(part, allow_pickle=False)
                    part.read()  # to the end, so that the checksum is verified
    return content


def _sweep(target: Path) -> None:
    """Remove what saves that were killed an hour ago or more left beside the file."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 16}"):
        if left.stat().st_mtime < time.time() - 3600.0:
            left.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
