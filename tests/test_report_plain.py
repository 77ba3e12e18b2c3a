"""Tables for papers: LaTeX that is well formed, Markdown, and CSV that can be read back."""

import json
import re
from io import StringIO
from pathlib import Path
from shutil import which
from subprocess import run

import pandas as pd
import pytest

from fairlag.analyse.siege import Assault
from fairlag.analyse.sweep import Sensitivity, Swept
from fairlag.lab.attacks import Guarded, Misfit
from fairlag.lab.experiment import parse
from fairlag.lab.serialise import toml
from fairlag.lab.sweep.objective import Objective
from fairlag.lab.sweep.result import FINISHED, Result, Tried, Tuned
from fairlag.report.plain import PlainTable, escaped, latex, markdown
from fairlag.report.siege import siege_plain
from fairlag.report.sweep import sweep_plain
from fairlag.text.scored import ACCURACY
from tests.support.command import Call
from tests.support.runs import played, strategies

ODD = PlainTable(
    "50 % of a_b & {c}",
    ("strategy", "R² #1"),
    ((r"FedAvg [lr=0.1] \x ~ ^ $5", "92.00 ±1.58"), ("[first]", "–")),
    ("p < 0.05 × 2 ÷ 3 ≥ 1 … a–b",),
)


def check_latex(text: str) -> list[list[str]]:
    """The rows of every tabular, if LaTeX could read it: nothing special is bare, all that opens closes."""
    rows = []
    opened: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    for sides, body in re.findall(r"\\begin\{tabular\}\{(.+?)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL):
        for line in body.splitlines():
            if line in (r"\toprule", r"\midrule", r"\bottomrule"):
                continue
            assert line.endswith(r" \\")
            cells = re.split(r"(?<!\\)&", line.removesuffix(r"\\"))
            assert len(cells) == len(re.sub(r"p\{[^}]*\}", "p", sides))
            assert not cells[0].startswith("[")  # it would be the argument of the line break before
            rows.append([cell.strip() for cell in cells])
    bare = re.sub(r"\\(textbackslash|textasciitilde|textasciicircum|ldots)\{\}", "", text)
    bare = re.sub(r"\\[&%$#_{}]", "", bare)
    depth = 0
    for sign in bare:
        depth += (sign == "{") - (sign == "}")
        assert depth >= 0
    assert depth == 0
    maths = re.findall(r"\$([^$]*)\$", bare)
    assert bare.count("$") == 2 * len(maths)
    outside = re.sub(r"\$[^$]*\$", "", bare)
    assert not set("%#_^<>") & set(outside)
    assert all(sign.isascii() or (sign.isalpha() and sign < "\u0180") for sign in outside)  # accents are fine
    return rows


def test_odd_texts_in_latex() -> None:
    head, first, second = check_latex(latex(ODD))
    assert head == ["strategy", r"R$^2$ \#1"]
    assert first == [
        r"FedAvg {[}lr=0.1] \textbackslash{}x \textasciitilde{} \textasciicircum{} \$5",
        r"92.00 $\pm$1.58",
    ]
    assert second == ["{[}first]", "--"]
    with pytest.raises(AssertionError):
        check_latex(latex(ODD).replace(r"\#", "#"))
    with pytest.raises(AssertionError):
        check_latex(latex(ODD).replace(" & ", " ", 1))


AWKWARD = r"""Fed_Buff \lr{0.1} 50% & "x" #1 $2 ~^ [β, Δ, λ] ±0.1 × 3 → é"""


def awkward_sweep() -> PlainTable:
    """What a sweep of strategies and settings with awkward names found."""
    tuned = Tuned.of(AWKWARD, [Tried({"lr_%": 0.1, "ε": r"a\b_c"}, "", Result(FINISHED, values={0: 0.5}))], higher=True)
    rows = (Sensitivity.of(tuned, [0.5, 0.6], higher=True),)
    return sweep_plain(Swept(Path("a_b"), Objective("all", ACCURACY), (0,), rows, (tuned,), "50 % of {a_b}"))


def awkward_attack() -> PlainTable:
    """What an attack on a group with an awkward name did."""
    numbers = {"score": 0.5, "lost": 0.1, "influence": 0.2, "share": 0.2, "refused": 0.0, "unheard": 0.0}
    row = Assault(AWKWARD, "krum(f=2)", f"sign_flip(10) by {AWKWARD}", **numbers, seeds=1, failed=1, reasons=(AWKWARD,))
    return siege_plain([row], [Misfit(Guarded(AWKWARD, "median"), AWKWARD)], ACCURACY)


@pytest.mark.slow
def test_latex_reads_every_table_that_can_be_exported(call: Call, tmp_path: Path) -> None:
    if which("pdflatex") is None:
        pytest.fail("this test needs TeX: install texlive-latex-recommended (on Debian, the package of that name)")
    strategies(tmp_path / "runs", **{AWKWARD: [93, 91, 90], "B_2": [91, 92, 92], r"\C": [60, 58, 59]})
    played(tmp_path / "runs/lost", r"\C", seed=3, finished=False)
    file = tmp_path / "mine.toml"
    clients = [{"group": name, "count": 3, "delay": "uniform(1, 2)"} for name in (AWKWARD, "slow_%")]
    uses = [{"use": "fairshare", "label": AWKWARD, "buffer": 2}, {"use": "fedbuff", "buffer": 2}]
    file.write_text(toml(parse({"name": "a_b & 50%", "aggregations": 20, "clients": clients, "strategies": uses})))
    brief = ("--seeds", "1", "--incentive-updates", "300000", "--incentive-error", "0.5", "--workers", "1")
    tables = [
        latex(ODD),
        call("compare", str(tmp_path / "runs"), "--export", "latex").out,
        call("audit", str(file), *brief, "--export", "latex").out,
        call("strategies", "--export", "latex").out,
        latex(awkward_sweep()),
        latex(awkward_attack()),
    ]
    assert [table.count(r"\begin{table}") for table in tables] == [1, 2, 3, 1, 1, 1]
    for table in tables:
        check_latex(table)
    whole = ["\\documentclass{article}\\usepackage{booktabs}\\begin{document}", *tables, "\\end{document}"]
    (tmp_path / "table.tex").write_text("\n\\clearpage\n".join(whole))
    done = run(
        ["pdflatex", "-draftmode", "-interaction=nonstopmode", "-halt-on-error", "table.tex"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]


@pytest.mark.parametrize("letter", "αλοςωΑΔΣΧΩ")
def test_greek_letters_are_commands_that_latex_has(letter: str) -> None:
    known = {"α": r"$\alpha$", "λ": r"$\lambda$", "ο": r"$\mathrm{o}$", "ς": r"$\sigma$", "ω": r"$\omega$"}
    known |= {"Α": r"$\mathrm{A}$", "Δ": r"$\Delta$", "Σ": r"$\Sigma$", "Χ": r"$\mathrm{X}$", "Ω": r"$\Omega$"}
    assert escaped(letter) == known[letter]


def test_letters_stay() -> None:
    assert escaped("Gruppe für Müller") == "Gruppe für Müller"


def test_markdown_has_as_many_cells_in_every_row() -> None:
    lines = [line for line in markdown(ODD).splitlines() if line.startswith("|")]
    assert {len(re.split(r"(?<!\\)\|", line)) for line in lines} == {4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("runs")
    strategies(where, A=[93, 91, 90, 94, 92], B_2=[91, 92, 92, 91, 93], C=[60, 58, 59, 61, 57])
    return where


def test_a_comparison_in_every_format(call: Call, folder: Path) -> None:
    written = call("compare", str(folder), "--export", "latex").out
    rows = check_latex(written)
    assert rows[0][:3] == ["rank", "strategy", r"accuracy \%"]
    assert "\nrank: by accuracy \\%, the highest first.\n" in written
    assert [row[:3] for row in rows[1:4]] == [
        ["1", "A", r"92.00 $\pm$1.58"],
        ["1", r"B\_2", r"91.80 $\pm$0.84"],
        ["3", "C", r"59.00 $\pm$1.58"],
    ]
    assert rows[6] == ["C", "-33.00", "-34.76 to -31.24", "$<$ 0.001", "5", "yes"]
    assert "| 1 | B_2 | 91.80 ±0.84 |" in call("compare", str(folder), "--export", "markdown").out
    frame = pd.read_csv(StringIO(call("compare", str(folder), "--export", "csv").out))
    assert frame["strategy"].tolist() == ["A", "B_2", "C"]
    assert frame["accuracy"].tolist() == pytest.approx([0.92, 0.918, 0.59])
    assert frame["difference"].tolist()[1:] == pytest.approx([-0.002, -0.33])
    exported, asked = (call("compare", str(folder), *option).out for option in (("--export", "json"), ("--json",)))
    assert exported == asked
    found = json.loads(asked)["strategies"]
    assert found[0]["against_first"] is None
    assert found[2]["against_first"]["interval"] == pytest.approx([-0.3476, -0.3124], abs=1e-4)


def test_an_audit_and_the_list_of_strategies_in_every_format(call: Call) -> None:
    short = ("audit", "demo", "--strategy", "fairshare", "--seeds", "1", "--aggregations", "20")
    quick = (*short, "--incentive-updates", "2000", "--workers", "1")
    assert ["FairShare", "fast"] in [row[:2] for row in check_latex(call(*quick, "--export", "latex").out)]
    frame = pd.read_csv(StringIO(call(*quick, "--export", "csv").out))
    assert frame["influence"].sum() == pytest.approx(1, abs=1e-5)
    assert "| FairShare | fast |" in call(*quick, "--export", "markdown").out
    listed = check_latex(call("strategies", "--export", "latex").out)
    assert "fedbuff" in [row[0] for row in listed]


def test_an_unknown_format_is_refused(call: Call, folder: Path) -> None:
    assert call("compare", str(folder), "--export", "word").err == (
        "fairlag: --export is 'word', it must be one of latex, markdown, csv, json, or a file such as best.toml\n"
    )
