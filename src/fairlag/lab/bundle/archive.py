"""The zip file of a bundle: written so that the same content gives the same bytes, and unpacked safely."""

import hashlib
import shutil
import stat
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from fairlag.errors import InputError
from fairlag.files import PARTIAL, place
from fairlag.lab.bundle.named import is_inside
from fairlag.lab.digest import of_file
from fairlag.lab.folder import SUMS
from fairlag.limits import printable, shown

MOST_BYTES, MOST_MEMBERS, LONGEST_NAME = 2_000_000_000, 20_000, 240
"""The most that a bundle holds when it is unpacked, and the most characters of a name in it."""
_BLOCK = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every member: the earliest that a zip file can have."""
_ENCRYPTED = 1


def write(file: Path, members: Mapping[str, Path | bytes]) -> None:
    """Writes a bundle with these members, and the checksums of all of them."""
    for name in members:
        _check_name(name, "the bundle would have a file called {}, which not every system can unpack: rename it")
    sums = "".join(f"{_sha256(members[name])}  {name}\n" for name in sorted(members))
    contents = {SUMS: sums.encode(), **members}
    size = sum(each.stat().st_size if isinstance(each, Path) else len(each) for each in contents.values())
    if size > MOST_BYTES or len(contents) > MOST_MEMBERS:
        raise InputError(
            f"the bundle would hold {len(contents):,} files with {size:,} bytes, but it may hold {MOST_MEMBERS:,} with "
            f"{MOST_BYTES:,}: freeze fewer runs"
        )
    target = file.resolve()
    partial = target.with_name(target.name + PARTIAL)
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as bundle:
            for name in sorted(contents):
                _add(bundle, name, contents[name])
        place(partial, target)
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)


def _add(bundle: zipfile.ZipFile, name: str, content: Path | bytes) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # Unix, on every system
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    info.file_size = content.stat().st_size if isinstance(content, Path) else len(content)
    with bundle.open(info, "w") as member:
        if isinstance(content, bytes):
            member.write(content)
            return
        with content.open("rb") as stream:
            shutil.copyfileobj(stream, member, _BLOCK)


def _sha256(content: Path | bytes) -> str:
    return hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else of_file(content)


def unpack(file: Path, folder: Path) -> list[str]:
    """Unpacks a bundle, which may come from anyone, into an empty folder; returns the names of its members.

    Everything is refused that a bundle does not have: names that leave the folder or appear twice, encryption, other
    compressions, and more bytes or members than the bounds. Every member must have the checksum that the bundle states.
    """
    if not file.is_file():
        raise InputError(f"there is no bundle {str(file)!r}")
    try:
        with zipfile.ZipFile(file) as bundle:
            infos = bundle.infolist()
            _check(infos)
            found = {info.filename: _unpacked(bundle, info, folder) for info in infos}
    except InputError as error:
        raise InputError(f"{str(file)!r} cannot be read: {error}") from None
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be unpacked: {error.strerror or error}") from None
    except Exception as error:  # zipfile raises many kinds on a damaged file, among them struct.error and zlib.error
        raise InputError(f"{str(file)!r} is not a bundle, or is damaged ({printable(str(error))})") from None
    _check_sums(file, folder, found)
    return sorted(found)


def _check(infos: list[zipfile.ZipInfo]) -> None:
    if len(infos) > MOST_MEMBERS:
        raise InputError(f"it has {len(infos):,} members, a bundle has at most {MOST_MEMBERS:,}")
    if (size := sum(info.file_size for info in infos)) > MOST_BYTES:
        raise InputError(f"it unpacks to {size:,} bytes, a bundle has at most {MOST_BYTES:,}")
    seen, folders = set[str](), set[str]()
    for info in infos:
        name = info.filename
        _check_name(name)
        # Some systems do not tell upper from lower case, so two such names could be one file.
        if name.casefold() in seen:
            raise InputError(f"two of its members are called {shown(name)}")
        seen.add(name.casefold())
        folders |= {parent.as_posix().casefold() for parent in PurePosixPath(name).parents}
        if info.flag_bits & _ENCRYPTED or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"its member {shown(name)} is encrypted, or compressed in a way that bundles are not")
    if both := seen & folders:
        raise InputError(f"its member {shown(min(both))} is a file and a folder")


def _check_name(name: str, sentence: str = "its member {} has a name that no bundle uses") -> None:
    whole = name and len(name) <= LONGEST_NAME and printable(name) == name and not any(each in name for each in "\\:\n")
    parts = name.split("/")
    if not whole or not is_inside(name) or any(part in ("", ".", "..") for part in parts):
        raise InputError(sentence.format(shown(name)))


def _unpacked(bundle: zipfile.ZipFile, info: zipfile.ZipInfo, folder: Path) -> str:
    """Unpacks a member as a plain file; returns its digest."""
    place = folder / info.filename
    place.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with bundle.open(info) as member, place.open("xb") as target:
        for block in _blocks(member):
            digest.update(block)
            target.write(block)
    return digest.hexdigest()


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: stream.read(_BLOCK), b"")


def _check_sums(file: Path, folder: Path, found: Mapping[str, str]) -> None:
    """Refuses a bundle whose members are not those that were frozen."""
    try:
        lines = (folder / SUMS).read_text("utf-8").splitlines()
    except (OSError, ValueError):
        raise InputError(f"{str(file)!r} is not a bundle: it has no {SUMS}") from None
    stated = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    actual = {name: digest for name, digest in found.items() if name != SUMS}
    for name in sorted(stated.keys() | actual.keys()):
        if stated.get(name) == actual.get(name):
            continue
        how = "was added" if name not in stated else "was changed"
        how = f"{how} after it was frozen" if name in actual else "is missing"
        raise InputError(f"{str(file)!r} is damaged: its member {shown(name)} {how}")
