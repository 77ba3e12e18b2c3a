"""A real federation on this machine: one SuperLink and some SuperNodes with TLS and node authentication, on loopback.

    python federation.py start [--folder federation] [--nodes fast:0 fast:1 slow:2 slow:3] [--port 9700] [--secure]

makes certificates and keys in the folder, starts everything, prints the command that runs the app on it, and ends all
processes at Ctrl-C. A node is written as its group and the number of its partition. A SuperNode on another machine
needs `ca.pem`, its own key, and the address of the SuperLink, whose certificate must then name that address. With
`--secure`, a mask keeper is started too, and the nodes send only masked updates.
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
from fairlag.privacy.secure.keys import make_keys

HERE = Path(__file__).resolve().parent
LOOPBACK = "127.0.0.1"
OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",  # no usage statistics to Flower Labs
    "FLWR_DISABLE_UPDATE_CHECK": "1",  # no check for a newer Flower
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # no installation of an app's dependencies
    "RAY_USAGE_STATS_ENABLED": "0",
}
NODES = ("fast:0", "fast:1", "slow:2", "slow:3")


class Federation:
    """A SuperLink, its SuperNodes and perhaps a mask keeper; each can be killed and started again."""

    def __init__(
        self,
        folder: Path,
        nodes: tuple[str, ...] = NODES,
        port: int = 9700,
        fleet: str = "four",
        *,
        secure: bool = False,
    ) -> None:
        self.folder = folder.resolve()
        self.port = port
        self.nodes = dict(enumerate(nodes))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        resources = Resources(fairlag.load(HERE / "digits_fleet" / f"{fleet}.toml"))
        _check(nodes, resources, port, ports=1 + len(nodes) + secure)
        for place in ("data", "keys", "logs", "flwr"):
            (self.folder / place).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._lock = _locked(self.folder)
        if not (self.folder / "ca.pem").exists():
            make_certificates(self.folder)
        for number in self.nodes:
            if not self.key(number).exists():
                make_key(self.key(number))
        public = {node: self.key(number).with_suffix(".pub").read_text() for number, node in self.nodes.items()}
        self.allowed.write_text("".join(f"{key.strip()} {node}\n" for node, key in public.items()))
        self.secure, self.keeper = secure, f"{LOOPBACK}:{port + 1 + len(nodes)}"
        self.size = resources.setting(0).layout.size
        if secure:
            self._make_mask_keys()
        self._deal(resources)
        (self.folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "fleet"\n\n[superlink.fleet]\naddress = "{LOOPBACK}:{port}"\n'
            f'root-certificates = "{self.folder / "ca.pem"}"\n'
        )

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every process: no telemetry, and the Flower of this Python."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, **OFFLINE, "FLWR_HOME": str(self.folder / "flwr"), "PATH": path}

    def key(self, number: int) -> Path:
        """The private key of a node; its public key is beside it."""
        return self.folder / "keys" / f"node-{number}"

    @property
    def allowed(self) -> Path:
        """The allow-list: the public keys of the nodes, each with its group and partition."""
        return self.folder / "allowed"

    @property
    def mask_keys(self) -> Path:
        """The keys of secure aggregation. On real machines, each party has only its own and the others' `.pub`."""
        return self.folder / "masks"

    def start(self) -> None:
        """Starts the SuperLink and the keeper, then registers and starts every node."""
        self.start_superlink()
        if self.secure:
            self.start_keeper()
        for number in self.nodes:
            # The SuperLink remembers earlier keys.
            self.flwr("supernode", "register", f"{self.key(number)}.pub", "fleet", tolerated="already in use")
            self.start_node(number)

    def start_superlink(self) -> None:
        """Starts the SuperLink, whose state is kept on disk, and waits until it answers."""
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

    def start_keeper(self) -> None:
        """Starts the mask keeper, and waits until it listens."""
        files = {name: str(self.mask_keys / name) for name in ("keeper.key", "server.pub", "clients.txt")}
        self._start(
            "keeper",
            [sys.executable, "-m", "fairlag", "keeper", "--listen", self.keeper, "--key", files["keeper.key"]]
            + ["--server", files["server.pub"], "--clients", files["clients.txt"]]
            + ["--run", "digits", "--size", str(self.size), "--least", "2", "--bound", "0.6"],
        )
        until = time.monotonic() + 60
        host, port = self.keeper.split(":")
        while time.monotonic() < until and self.processes["keeper"].poll() is None:
            with suppress(OSError):
                socket.create_connection((host, int(port)), timeout=5).close()
                return
            time.sleep(0.2)
        raise SystemExit(f"the keeper did not start: see {self.folder / 'logs' / 'keeper.log'}")

    def start_node(self, number: int) -> None:
        """Starts a node, with its key and its configuration."""
        group, partition = self.nodes[number].split(":")
        config = f'partition-id={partition} group="{group}" data="{self._data(self.nodes[number])}"'
        if self.secure:
            key = self.mask_keys / f"node-{number}" / "client.key"
            config += f' keeper="{self.mask_keys / "keeper.pub"}" client-key="{key}"'
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
            + ["--node-config", config],
        )

    def stop(self, *names: str, kill: bool = False) -> None:
        """Ends processes and all that they started: by SIGTERM, or at once, like a power cut."""
        stopped = [self.processes.pop(name) for name in names]
        for number in (signal.SIGKILL,) if kill else (signal.SIGTERM, signal.SIGKILL):
            for process in stopped:
                with suppress(ProcessLookupError):  # no process of its group is left
                    os.killpg(process.pid, number)
            until = time.monotonic() + 10
            for process in stopped:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=max(0.0, until - time.monotonic()))

    def supervise(self) -> None:
        """Restarts nodes and the keeper if they have ended, as a service manager would.

        A node that was killed cannot come back before Flower has noticed, which takes a minute. Until then its key
        counts as in use, and a rejected SuperNode ends.
        """
        for name, process in list(self.processes.items()):
            if name != "superlink" and process.poll() is not None:
                self.stop(name, kill=True)
                if name == "keeper":
                    self.start_keeper()
                else:
                    self.start_node(int(name.removeprefix("node-")))

    def close(self) -> None:
        """Ends all nodes, then the SuperLink, then the keeper, which a run that is under way may still ask."""
        self.stop(*(name for name in self.processes if name.startswith("node-")))
        self.stop(*(name for name in self.processes if name == "superlink"))
        self.stop(*self.processes)
        os.close(self._lock)

    def flwr(self, *words: str, tolerated: str | None = None) -> str:
        """The output of a Flower command. It must not fail, except with the tolerated message."""
        done = subprocess.run(
            ["flwr", *words], env=self.environment, cwd=HERE, capture_output=True, text=True, check=False
        )
        said = done.stdout + done.stderr
        if done.returncode and (tolerated is None or tolerated not in said):
            raise SystemExit(f"flwr {' '.join(words)} failed: {said}")
        return done.stdout

    def _make_mask_keys(self) -> None:
        """Makes the keys of the keeper, the server and the nodes that have none, and the keeper's list of clients."""
        for party in ("keeper", "server"):
            if not (self.mask_keys / f"{party}.key").exists():
                make_keys(self.mask_keys, party)
        listed = []
        for number, node in self.nodes.items():
            file = self.mask_keys / f"node-{number}" / "client.pub"
            if not file.exists():
                make_keys(file.parent, "client")
            listed.append(f"{file.read_text().strip()} {node}\n")
        (self.mask_keys / "clients.txt").write_text("".join(listed))

    def _deal(self, resources: Resources) -> None:
        """Writes the data of each node into a file."""
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
        until = time.monotonic() + 300
        while time.monotonic() < until and self.processes["superlink"].poll() is None:
            try:
                with urllib.request.urlopen(f"https://{LOOPBACK}:{self.port}/health", context=trusted, timeout=5):
                    return
            except (URLError, OSError):
                time.sleep(0.2)
        raise SystemExit(f"the SuperLink did not start: see {self.folder / 'logs' / 'superlink.log'}")


def _check(nodes: tuple[str, ...], resources: Resources, port: int, ports: int) -> None:
    """Checks before anything is made that the nodes are in the fleet and their ports are free."""
    last = resources.experiment.population - 1
    for node in nodes:
        group, _, partition = node.partition(":")
        if not group or not partition.isdecimal() or int(partition) > last:
            raise InputError(f"the node is {node!r}; it must be a group and a partition from 0 to {last}, like fast:0")
    if len(set(nodes)) < len(nodes):
        raise InputError(f"the nodes are {' '.join(nodes)}; each may be given only once")
    for number in range(port, port + ports):
        try:
            socket.create_server((LOOPBACK, number)).close()
        except (OSError, OverflowError) as error:
            raise InputError(f"cannot use port {number}: {error}. Give another first port with --port") from None


def _locked(folder: Path) -> int:
    """Locks the folder: two federations would share the keys and the state of one SuperLink."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InputError(f"a federation is already running in {str(folder)!r}: give another --folder") from None
    return lock


def make_key(file: Path) -> None:
    """Makes a key pair for a node, as Flower reads them: P-384, in OpenSSH files."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    _write_secret(file, private)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    file.with_name(f"{file.name}.pub").write_bytes(public + b"\n")


def make_certificates(folder: Path) -> None:
    """Makes a certificate authority, and a certificate of the SuperLink for this machine, for a year."""
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
    parser.add_argument("--port", type=int, default=9700, help="port of the SuperLink; the others use the next ports")
    parser.add_argument("--secure", action="store_true", help="start a mask keeper, and mask all updates")
    options = parser.parse_args()
    try:
        federation = Federation(options.folder, tuple(options.nodes), options.port, secure=options.secure)
    except (InputError, OSError) as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as with Ctrl-C
    try:
        federation.start()
        home = shlex.quote(str(federation.folder / "flwr"))
        print(f"{len(federation.nodes)} nodes are running. In another terminal, in {HERE}:", flush=True)
        config = f"allow='{federation.allowed}' out='runs/digits-real'"
        if options.secure:
            config += f" keeper='{federation.keeper}' keys='{federation.mask_keys}'"
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
