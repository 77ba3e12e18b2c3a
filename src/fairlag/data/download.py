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
"""Is told how many bytes came, and how many there are in all."""


def get(name: str, progress: Progress | None = None) -> Path:
    """The folder of a downloaded data set; what is there already, and right, is not downloaded again."""
    if name not in SOURCES:
        raise InputError(f"there is nothing to download for {name!r}; there is for {', '.join(SOURCES)}")
    source = SOURCES[name]
    folder, others = source.downloads, ", or by ".join(source.ways[1:])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".partial-") as partial:
            _fill(folder, source, Path(partial), _Bar(progress, source.size), f"try again, or get it by {others}")
    except OSError as error:
        raise InputError(f"{name} cannot be kept in {folder} ({error}): make room, or get it by {others}") from error
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

    pooch.get_logger().setLevel("ERROR")  # it would print the checksum of the packed file, which nobody needs
    try:
        # No hash: what counts are the unpacked bytes, which are verified afterwards.
        downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=65_536, timeout=30)
        pooch.retrieve(address, known_hash=None, fname=file.name, path=file.parent, downloader=downloader)
    except requests.RequestException as error:
        status = "" if error.response is None else f" {error.response.status_code}"
        raise InputError(f"{address} cannot be downloaded ({type(error).__name__}{status}): {advice}") from error


@dataclass
class _Bar:
    """What pooch takes for a progress bar: adds up the files of a data set."""

    progress: Progress | None
    size: int
    total: int = 0
    before: int = 0
    come: int = 0

    def update(self, count: int) -> None:
        """So many bytes more of this file came."""
        self.come += count
        if self.progress is not None:
            self.progress(min(self.before + self.come, self.size), self.size)

    def reset(self) -> None:
        """Pooch begins this file's count anew, to end it at exactly the total."""
        self.come = 0

    def close(self) -> None:
        """This file is complete."""
        self.before, self.come = self.before + self.come, 0
