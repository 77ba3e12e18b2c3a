"""The keeper's real process for tests: its files, its start, and a server's connection to it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fairlag.privacy.secure.keys import make_keys
from fairlag.privacy.secure.link import KeeperLink
from fairlag.privacy.secure.wire import Terms
from tests.support.secure import BOUND, CLIENTS, KEEPER, LEAST, RUN, SIZE


def files(folder: Path) -> Path:
    """A folder with new keys for TLS, and the known keys of `tests.support.secure` for seals and clients."""
    for party in ("keeper", "server"):
        make_keys(folder, party)
    own = KEEPER.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    key = folder / "keeper.key"
    key.write_text(re.sub(r"-----BEGIN PRIVATE KEY-----(?!.*BEGIN).*", own, key.read_text(), flags=re.DOTALL))
    folder.joinpath("clients.txt").write_text("".join(f"{each.hex()}  client\n" for each in CLIENTS))
    return folder


@dataclass
class Started:
    folder: Path
    process: subprocess.Popen[str]
    address: str
    lines: list[str]
    reader: Thread

    def ended(self) -> int:
        """The exit code, when the process has ended and all its lines were read."""
        self.reader.join(60)
        return self.process.wait(60)

    def link(self, **options: float) -> KeeperLink:
        folder = self.folder
        return KeeperLink(self.address, folder / "server.key", folder / "keeper.pub", SIZE, **options)  # type: ignore[arg-type]

    def end(self) -> None:
        """As `kill -9`: the process learns nothing of it."""
        self.process.kill()
        self.process.wait()


@contextmanager
def started(
    folder: Path,
    listen: str = "127.0.0.1:0",
    terms: Terms = Terms(RUN, SIZE, LEAST, BOUND),  # noqa: B008 (frozen)
) -> Iterator[Started]:
    """A keeper's process over the files in a folder, which ends with the block."""
    command = [sys.executable, "-m", "fairlag", "keeper", "--listen", listen, "--key", f"{folder}/keeper.key"]
    command += ["--server", f"{folder}/server.pub", "--clients", f"{folder}/clients.txt", "--run", terms.run]
    command += ["--size", f"{terms.size}", "--least", f"{terms.least}", "--bound", f"{terms.bound}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines: list[str] = []
        reader: Thread | None = None
        try:
            for line in process.stderr:
                lines.append(line)
                if found := re.match(r"listening on (\S+);", line):
                    break
            else:
                raise AssertionError(f"the keeper did not start: {lines}")
            reader = Thread(target=lines.extend, args=(process.stderr,), daemon=True)
            reader.start()
            yield Started(folder, process, found[1], lines, reader)
        finally:
            process.kill()
            if reader is not None:
                reader.join()
