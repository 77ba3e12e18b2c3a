"""Downloads of published data sets, moved into place only when their bytes are right."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fairlag.data.places import is_right, verified
from fairlag.data.sources import SOURCES, Source
from fairlag.errors import InputError
from fairlag.files import put

Progress = Callable[[int, int], None]
"""Called with the number of bytes received so far, and the total."""


def get(name: str, progress: Progress | None = None) -> Path:
    """The folder of a downloaded data set; files that are already there and verified are not downloaded again."""
    if name not in SOURCES:
        raise InputError(f"{name!r} cannot be downloaded, only {', '.join(SOURCES)}")
    source = SOURCES[name]
    folder, others = source.downloads, ", or by ".join(source.ways[1:])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".partial-") as partial:
            _fill(folder, source, Path(partial), _Bar(progress, source.size), f"try again, or get it by {others}")
    except OSError as error:
        raise InputError(
            f"{name} cannot be saved in {folder} ({error}): free some space, or get it by {others}"
        ) from error
    return folder


def _fill(folder: Path, source: Source, partial: Path, bar: "_Bar", advice: str) -> None:
    for file in source.remote.names(part for part in source.sums if not is_right(source, folder / part)):
        address = f"{source.address}{file}"
        _fetch(address, partial / file, bar, advice)
        for part, content in verified(source, source.remote, partial / file, origin=address, advice=advice):
            put(folder / part, content.data)


def _fetch(address: str, file: Path, bar: "_Bar", advice: str) -> None:
    import pooch  # type: ignore[import-untyped]
    import requests

    pooch.get_logger().setLevel("ERROR")  # it would print the checksum of the packed file, which is of no use here
    try:
        # No hash: the unpacked bytes are verified afterwards.
        downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=65_536, timeout=30)
        pooch.retrieve(address, known_hash=None, fname=file.name, path=file.parent, downloader=downloader)
    except requests.RequestException as error:
        status = "" if error.response is None else f" {error.response.status_code}"
        raise InputError(f"{address} cannot be downloaded ({type(error).__name__}{status}): {advice}") from error


@dataclass
class _Bar:
    """A progress bar for pooch that adds up the files of a data set."""

    progress: Progress | None
    size: int
    total: int = 0
    before: int = 0
    received: int = 0

    def update(self, count: int) -> None:
        """Adds received bytes of this file."""
        self.received += count
        if self.progress is not None:
            self.progress(min(self.before + self.received, self.size), self.size)

    def reset(self) -> None:
        """Starts this file's count again: pooch calls it at the end, before it reports the total."""
        self.received = 0

    def close(self) -> None:
        """This file is complete."""
        self.before, self.received = self.before + self.received, 0
