"""
The file: a zip in SB3's format with a seal, written so that a crash at any moment leaves the old one or the new one whole.

The seal covers every byte: the zip's comment ends in the SHA-256 of all that stands before the digest. ``manifest.json``,
beside the other members, has the size and SHA-256 of each one, so that a damaged file can be described.
"""

import hashlib
import io
import json
import os
import re
import threading
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

MANIFEST = "manifest.json"
METADATA = "metadata.yaml"
# Of what a checkpoint holds beside SB3's content.
FORMAT = 2
_SEAL = b"sb3-hrl sha256 "
_DIGEST_SIZE = 64
# A model of this size would not have been trained here; a stranger's file may claim anything.
_MAX_BYTES = 8 * 2**30
# SB3 does not compress; ordinary data that somebody has compressed stays far below.
_MAX_RATIO = 200
_TEMPORARY = re.compile(r"\..+\.tmp-(\d+)-\d+")


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read: the message names the file, what is wrong, and the newest good one beside it."""


class Archive(NamedTuple):
    """
    The members of a file that has been checked.

    :param path: where it lies, or what to call it
    :param data: the whole file
    :param members: by name
    """

    path: str
    data: bytes
    members: Mapping[str, bytes]

    @property
    def metadata(self) -> dict[str, Any]:
        """What ``metadata.yaml`` says; empty for a zip of SB3's own."""
        return yaml.safe_load(self.members[METADATA]) if METADATA in self.members else {}


def seal(zip_bytes: bytes, extra: Mapping[str, bytes]) -> bytes:
    """
    :param zip_bytes: a zip in SB3's format
    :param extra: more members, by name
    :return: the same with these members, the manifest and the seal
    """
    buffer = io.BytesIO(zip_bytes)
    with zipfile.ZipFile(buffer, "a") as archive:
        for name, content in extra.items():
            archive.writestr(name, content)
    with zipfile.ZipFile(buffer) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    manifest = {name: {"size": len(content), "sha256": _digest(content)} for name, content in contents.items()}
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
        archive.comment = _SEAL + b"0" * _DIGEST_SIZE
    body = buffer.getvalue()[:-_DIGEST_SIZE]
    return body + _digest(body).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(source: str | Path | io.BufferedIOBase) -> Archive:
    """
    Read and check a file. One without a seal, as SB3 writes them, is checked as far as a zip can be.

    :param source: a path (``.zip`` may be left out), or an open file
    :return: its members
    :raises FileNotFoundError: if there is no such file
    :raises CheckpointError: if it is damaged, or not what it claims to be
    """
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.is_file() and Path(f"{path}.zip").is_file():
            path = Path(f"{path}.zip")
        name, data = str(path), path.read_bytes()
    else:
        name, data = str(getattr(source, "name", "the stream")), source.read()
    try:
        return Archive(name, data, _check(data))
    except _Damaged as damage:
        raise CheckpointError(f"{name}: {damage}{_recommend(name)}") from damage


class _Damaged(Exception):
    pass


def _check(data: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos, names = archive.infolist(), archive.namelist()
            # One flipped bit cannot take both away.
            is_sealed = _SEAL in data[-_DIGEST_SIZE - len(_SEAL) :] or MANIFEST in names
            _check_announced(infos)
            if "data" not in names:  # without its end, the file looks like one of the archives of torch inside of it
                raise _Damaged("the file is truncated, or holds no model: it has no member 'data'")
            if is_sealed and _digest(data[:-_DIGEST_SIZE]).encode() != data[-_DIGEST_SIZE:]:
                raise _Damaged(_describe_damage(archive))
            return {info.filename: _read_member(archive, info) for info in infos}
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, ValueError, OverflowError) as error:
        raise _Damaged(f"the file is truncated or no zip file ({error})") from error


def _check_announced(infos: list[zipfile.ZipInfo]) -> None:
    for info in infos:
        name = info.filename
        parts = name.replace("\\", "/").split("/")
        if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or info.is_dir():
            raise _Damaged(f"the member {name!r} points outside of the file")
        if info.file_size > _MAX_RATIO * max(info.compress_size, 1):
            raise _Damaged(f"the member {name!r} claims to grow from {info.compress_size} to {info.file_size} bytes")
    if len({info.filename for info in infos}) < len(infos):
        raise _Damaged("two members have the same name")
    total = sum(info.file_size for info in infos)
    if total > _MAX_BYTES:
        raise _Damaged(f"its members claim {total} bytes together, more than {_MAX_BYTES}")


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as member:
        content = member.read(info.file_size + 1)
    if len(content) != info.file_size:
        raise _Damaged(f"the member {info.filename!r} has {len(content)} bytes where {info.file_size} were announced")
    return content


def _describe_damage(archive: zipfile.ZipFile) -> str:
    """Which member differs from the manifest, as far as it can be told."""
    try:
        manifest = json.loads(archive.read(MANIFEST))
        for name, announced in manifest.items():
            if _digest(archive.read(name)) != announced["sha256"]:
                return f"the member {name!r} is damaged: its SHA-256 is not the manifest's"
    except Exception as error:  # whatever it is, the seal has said already that the file is damaged
        return f"the file is damaged: its SHA-256 does not fit its seal ({type(error).__name__}: {error})"
    return "the file is damaged: its SHA-256 does not fit its seal"


def _recommend(name: str) -> str:
    folder = Path(name).parent
    good = newest(folder, other_than=Path(name)) if Path(name).is_file() else None
    return f"; the newest whole checkpoint beside it is {good}" if good is not None else ""


# --- folders ----------------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """A whole checkpoint."""

    path: Path
    metadata: dict[str, Any]


def checkpoints(folder: Path) -> Iterator[Found]:
    """
    :param folder: a run's
    :return: its whole checkpoints; a warning names those that are damaged
    """
    for path in sorted(folder.glob("*.zip")):
        try:
            metadata = Archive("", b"", _check(path.read_bytes())).metadata
        except (_Damaged, OSError, yaml.YAMLError) as error:
            warnings.warn(f"{path} is passed over: {error}")
            continue
        if metadata:
            yield Found(path, metadata)


def newest(folder: Path, other_than: Path | None = None) -> Path | None:
    """
    :param folder: a run's
    :param other_than: a file that does not count
    :return: its whole resumable checkpoint with the most steps, if there is one
    """
    with warnings.catch_warnings():
        if other_than is not None:
            warnings.simplefilter("ignore")
        found = [item for item in checkpoints(folder) if item.metadata["kind"] == "resumable" and item.path != other_than]
    best = max(found, key=lambda item: (item.metadata["num_timesteps"], item.path.stat().st_mtime), default=None)
    return None if best is None else best.path


def write(path: Path, data: bytes) -> None:
    """
    Write a file so that its name stands for the old content or the new one, whole, whatever happens.

    :param path: where to; its folder is made
    :param data: the content
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}-{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_torn(folder: Path) -> None:
    """
    Remove what a process that was killed while it wrote has left.

    :param folder: a run's
    """
    for path in folder.glob(".*.tmp-*"):
        match = _TEMPORARY.fullmatch(path.name)
        if match is not None and not _is_alive(int(match.group(1))):
            path.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():
        return False  # it is not writing now
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
