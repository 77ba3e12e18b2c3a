"""`fairlag report` and `fairlag audit --report`: what is written, and what is refused with which sentence."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fairlag import simulate
from fairlag.lab.experiment import parse
from fairlag.lab.run import Run
from tests.support.command import Call
from tests.support.experiments import LEAN


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run without training, of an experiment that can be built again."""
    return simulate(parse(LEAN), out=tmp_path_factory.mktemp("lean") / "run")


def written(file: Path) -> dict[str, Any]:
    """The data of a page."""
    found = re.search(r'<script type="application/json" id="page">(.*?)</script>', file.read_text("utf-8"), re.DOTALL)
    assert found is not None
    page: dict[str, Any] = json.loads(found[1])
    return page


def test_a_page_is_one_file_that_fetches_nothing(call: Call, lean: Run, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    done = call("report", str(lean.folder), "--out", str(file), "--no-incentives")
    assert (done.code, done.out, done.err) == (0, f"The report was written to {file}\n", "")
    text = file.read_text("utf-8")
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=(?!\"data:)", text)
    page = written(file)
    names = [section["name"] for section in page["sections"]]
    assert names == ["experiment", "influence", "staleness", "timeline", "weights", "incentives", "losses"]
    (incentives,) = (section for section in page["sections"] if section["name"] == "incentives")
    assert not incentives["charts"]
    assert "Not simulated. `fairlag report`" in incentives["remarks"][0]


def test_it_is_called_report_unless_it_is_said_otherwise(
    call: Call, lean: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("report", str(lean.folder.resolve()), "--workers", "1")
    assert (done.code, done.out) == (0, "The report was written to report.html\n")
    assert re.search(r"incentives: FedBuff .*: (\d+) of \1 trials", done.err)
    page = written(tmp_path / "report.html")
    assert next(section for section in page["sections"] if section["name"] == "incentives")["charts"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("report", "nowhere"), "there is no folder 'nowhere'"),
        (("report", "."), "there are no runs in '.'"),
        (
            ("report", ".", "--out", "page.pdf"),
            "--out is 'page.pdf': the page is HTML, so its name must end",
        ),
        (("report", ".", "--out", "no/page.html"), "--out is 'no/page.html', but there is no folder 'no'"),
        (("report", ".", "--workers", "0"), "--workers is 0, it must be at least 1"),
        (("audit", "demo", "--report", "page.txt"), "--report is 'page.txt': the page is HTML"),
        (("audit", "demo", "--report", "no/page.html"), "--report is 'no/page.html', but there is no folder 'no'"),
    ],
)
def test_mistakes_are_one_sentence(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"fairlag: {sentence}")
    assert done.err.count("\n") == 1


def test_an_audit_is_written_as_a_page_and_printed_too(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "audit.html"
    short = ("--aggregations", "30", "--seeds", "1", "--incentive-updates", "9000", "--workers", "1")
    done = call("audit", "demo", *short, "--report", str(file))
    assert done.code == 0
    assert done.out.endswith(f"The report was written to {file}\n")
    page = written(file)
    assert page["title"] == "Audit of demo"
    assert [section["name"] for section in page["sections"]] == [
        "experiment",
        "influence",
        "staleness",
        "incentives",
        "deployment",
        "losses",
    ]
    assert page["sections"][0]["lead"].startswith("15 clients are simulated without training until 30 aggregations")


def test_json_is_all_that_is_printed_also_with_a_page(call: Call, tmp_path: Path) -> None:
    short = ("--aggregations", "30", "--seeds", "1", "--incentive-updates", "9000", "--workers", "1")
    done = call("audit", "demo", *short, "--json", "--report", str(tmp_path / "audit.html"))
    assert json.loads(done.out)["experiment"] == "demo"
    assert written(tmp_path / "audit.html")["sections"]
