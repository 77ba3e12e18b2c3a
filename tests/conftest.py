"""Fixtures that several tests use."""

import pytest

from tests.command import Call, caller


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command line in this process."""
    return caller(monkeypatch, capsys)
