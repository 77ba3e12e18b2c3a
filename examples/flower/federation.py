"""A real federation on this machine: one SuperLink and some SuperNodes with TLS and node authentication, on loopback.

    python federation.py start [--folder federation] [--nodes fast:0 fast:1 slow:2 slow:3] [--port 9700]

makes certificates and keys in the folder, starts everything, prints the command that runs the app on it, and ends all
processes at Ctrl-C. A node is written as its group and the number of its partition. A SuperNode elsewhere needs
`ca.pem`, its own key, and the address of the SuperLink, whose certificate must then name that address.
"""

import argparse
import fcntl
import ipaddress
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from ssl import create_default_context
from urllib.error import URLError

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import fairlag
from fairlag.errors import InputError
from fairlag.lab.resources import Resources

HERE = Path(__file__).resolve().parent
LOOPBACK = "127.0.0.1"
OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",  # no word about runs to Flower Labs
    "FLWR_DISABLE_UPDATE_CHECK": "1",  # no question whether there is a newer Flower
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # no installation of what an app says it needs
    "RAY_USAGE_STATS_ENABLED": "0",
}
NODES = ("fast:0", "fast:1", "slow:2", "slow:3")


class Federation:
    """A SuperLink and its SuperNodes; each can be killed and started again."""

    def __init__(self, folder: Path, nodes: tuple[str, ...] = NODES, port: int = 9700, fleet: str = "four") -> None:
        self.folder = folder.resolve()
        self.port = port
        self.nodes = dict(enumerate(nodes))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        resources = Resources(fairlag.load(HERE / "digits_fleet" / f"{fleet}.toml"))
        _check(nodes, resources, port)
        for place in ("data", "keys", "logs", "flwr"):
            (self.folder / place).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._lock = _locked(self.folder)
        if not (self.folder / "ca.pem").exists():
            make_certificates(self.folder)
        for number in self.nodes:
            if not self.key(number).exists():
                make_key(self.key(number))
        self._deal(resources)
        (self.folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "fleet"\n\n[superlink.fleet]\naddress = "{LOOPBACK}:{port}"\n'
            f'root-certificates = "{self.folder / "ca.pem"}"\n'
        )

    @property
    def environment(self) -> dict[str, str]:
        """Of every process: nothing calls home, and all use the Flower beside this Python."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, **OFFLINE, "FLWR_HOME": str(self.folder / "flwr"), "PATH": path}

    def key(self, number: int) -> Path:
        """The private key of a node; its public key is beside it."""
        return self.folder / "keys" / f"node-{number}"

    def start(self) -> None:
        """The SuperLink, then every node: registered with its public key, and started."""
        self.start_superlink()
        for number in self.nodes:
            # The SuperLink remembers the keys of the last time.
            self.flwr("supernode", "register", f"{self.key(number)}.pub", "fleet", tolerated="already in use")
            self.start_node(number)

    def start_superlink(self) -> None:
        """Starts the SuperLink, whose state survives it, and waits until it answers."""
        files = {name: str(self.folder / f"{name}.pem") for name in ("ca", "server", "server-key")}
        self._start(
            "superlink",
            ["flower-superlink", "--host", LOOPBACK, "--port", str(self.port), "--enable-supernode-auth"]
            + [
                "--ssl-ca-certfile",
                files["ca"],
                "--ssl-certfile",
                files["server"],
                "--ssl-keyfile",
                files["server-key"],
            ]
            + ["--database", str(self.folder / "superlink.db"), "--disable-runtime-dependency-installation"],
        )
        self._wait_for_superlink()

    def start_node(self, number: int) -> None:
        """Starts a node, with its key and its configuration."""
        group, partition = self.nodes[number].split(":")
        self._start(
            f"node-{number}",
            ["flower-supernode", "--superlink", f"{LOOPBACK}:{self.port}"]
            + [
                "--root-certificates",
                str(self.folder / "ca.pem"),
                "--auth-supernode-private-key",
                str(self.key(number)),
            ]
            + ["--host", LOOPBACK, "--port", str(self.port + 1 + number)]
            + ["--node-config", f'partition-id={partition} group="{group}" data="{self._data(self.nodes[number])}"'],
        )

    def stop(self, name: str, *, kill: bool = False) -> None:
        """Ends a process and all that it started: politely, or at once as a power cut would."""
        process = self.processes.pop(name)
        for number in (signal.SIGKILL,) if kill else (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):  # nobody of its group is left
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)

    def supervise(self) -> None:
        """Starts nodes that ended again, as a service manager would.

        A node that was killed cannot come back before Flower has noticed, which takes a minute: until then its key
        counts as in use, and a SuperNode that is turned away ends.
        """
        for name, process in list(self.processes.items()):
            if name != "superlink" and process.poll() is not None:
                self.stop(name, kill=True)
                self.start_node(int(name.removeprefix("node-")))

    def close(self) -> None:
        """Ends everything, the SuperLink last."""
        for name in sorted(self.processes, key=lambda each: each == "superlink"):
            self.stop(name)
        os.close(self._lock)

    def flwr(self, *words: str, tolerated: str | None = None) -> str:
        """What a command of Flower prints; it must not fail, except in the words that are tolerated."""
        done = subprocess.run(
            ["flwr", *words], env=self.environment, cwd=HERE, capture_output=True, text=True, check=False
        )
        said = done.stdout + done.stderr
        if done.returncode and (tolerated is None or tolerated not in said):
            raise SystemExit(f"flwr {' '.join(words)} failed: {said}")
        return done.stdout

    def _deal(self, resources: Resources) -> None:
        """Each node gets its own data, in a file."""
        for node in self.nodes.values():
            inputs, labels = resources.held(int(node.split(":")[1]))
            np.savez(self._data(node), inputs=inputs, labels=labels)

    def _data(self, node: str) -> Path:
        return self.folder / "data" / f"{node.replace(':', '-')}.npz"

    def _start(self, name: str, command: list[str]) -> None:
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def _wait_for_superlink(self) -> None:
        trusted = create_default_context(cafile=str(self.folder / "ca.pem"))
        until = time.monotonic() + 60
        while time.monotonic() < until and self.processes["superlink"].poll() is None:
            try:
                with urllib.request.urlopen(f"https://{LOOPBACK}:{self.port}/health", context=trusted, timeout=5):
                    return
            except (URLError, OSError):
                time.sleep(0.2)
        raise SystemExit(f"the SuperLink did not start: see {self.folder / 'logs' / 'superlink.log'}")


def _check(nodes: tuple[str, ...], resources: Resources, port: int) -> None:
    """Before anything is made: are the nodes some of the fleet, and are their ports free?"""
    last = resources.experiment.population - 1
    for node in nodes:
        group, _, partition = node.partition(":")
        if not group or not partition.isdecimal() or int(partition) > last:
            raise InputError(f"the node is {node!r}, it must be a group and a partition from 0 to {last}, like fast:0")
    if len(set(nodes)) < len(nodes):
        raise InputError(f"the nodes are {' '.join(nodes)}, each may be there once")
    for number in range(port, port + 1 + len(nodes)):
        try:
            socket.create_server((LOOPBACK, number)).close()
        except (OSError, OverflowError) as error:
            raise InputError(f"port {number} cannot be used, {error}: give another first port with --port") from None


def _locked(folder: Path) -> int:
    """Two federations would share the keys and the state of one SuperLink: the second is turned away."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InputError(f"a federation in {str(folder)!r} is running: give another --folder") from None
    return lock


def make_key(file: Path) -> None:
    """A key pair for a node, as Flower reads them: P-384, in the files of OpenSSH."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    _write_secret(file, private)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    file.with_name(f"{file.name}.pub").write_bytes(public + b"\n")


def make_certificates(folder: Path) -> None:
    """A certificate authority of one's own, and a certificate of the SuperLink for this machine, for a year."""
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer, subject = _named("fairlag example authority"), _named("localhost")
    ca = _certificate(issuer, issuer, authority.public_key()).add_extension(
        x509.BasicConstraints(True, 0), critical=True
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]
    mine = _certificate(subject, issuer, server.public_key()).add_extension(
        x509.SubjectAlternativeName(names), critical=False
    )
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(ca.sign(authority, hashes.SHA384()).public_bytes(pem))
    (folder / "server.pem").write_bytes(mine.sign(authority, hashes.SHA384()).public_bytes(pem))
    form = serialization.PrivateFormat.PKCS8
    _write_secret(folder / "server-key.pem", server.private_bytes(pem, form, serialization.NoEncryption()))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=365))
    )


def _write_secret(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser(description="A real federation on this machine.")
    parser.add_argument("command", choices=["start"])
    parser.add_argument("--folder", type=Path, default=Path("federation"))
    parser.add_argument("--nodes", nargs="+", default=list(NODES), metavar="GROUP:PARTITION")
    parser.add_argument("--port", type=int, default=9700, help="of the SuperLink; the nodes take the following ones")
    options = parser.parse_args()
    try:
        federation = Federation(options.folder, tuple(options.nodes), options.port)
    except (InputError, OSError) as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as at Ctrl-C
    try:
        federation.start()
        home = shlex.quote(str(federation.folder / "flwr"))
        print(f"{len(federation.nodes)} nodes are started. In another terminal, in {HERE}:", flush=True)
        config = "by-key=true out='runs/digits-real'"
        print(f'  FLWR_HOME={home} flwr run . fleet --stream --run-config "{config}"', flush=True)
        print(f"The run will be in {Path('runs/digits-real').resolve()}; Ctrl-C here ends all nodes.", flush=True)
        while True:
            time.sleep(5)
            federation.supervise()
            if federation.processes["superlink"].poll() is not None:
                raise SystemExit(f"the SuperLink ended: see {federation.folder / 'logs' / 'superlink.log'}")
    except KeyboardInterrupt:
        pass
    finally:
        federation.close()


if __name__ == "__main__":
    main()
