"""Who may take part in a deployment: no start without authentication, quarantine by hand, and a log that is checked."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.superlink.grid import InMemoryGrid

from fairlag.errors import InputError, StoreError, UnreadableError
from fairlag.lab import nodelog
from fairlag.lab.deploy import deploy
from fairlag.lab.events import Event, Kept
from fairlag.lab.governed import authenticated
from fairlag.lab.run import Run
from fairlag.report.page.build import runs_page
from fairlag.runtime.flower.allowed import allowed_nodes
from fairlag.runtime.flower.nodes import fingerprint
from fairlag.runtime.flower.options import Options
from tests.support.command import Call
from tests.support.experiments import SMALL
from tests.support.flower_deploy import OWN, QUICK, Crash, adding, counted
from tests.support.flower_grid import FakeGrid, FakeNode, replied
from tests.support.runs import runs_of

pytestmark = pytest.mark.usefixtures("quick_grid")

BEGIN: dict[str, Any] = {"arrays": {"weight": np.zeros(2, np.float32)}, **QUICK}
KEYS = [ec.generate_private_key(ec.SECP384R1()).public_key() for _ in range(5)]


def known_to_flower(number: int) -> bytes:
    """A key as Flower reports it."""
    return KEYS[number].public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def listed(file: Path, *numbers: int) -> Path:
    lines = [KEYS[each].public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() for each in numbers]
    file.write_text(
        "# who may take part\n\n" + "".join(f"{line} site {each}\n" for each, line in zip(numbers, lines, strict=True))
    )
    return file


def stopping(at: int) -> Any:
    def stop(event: Event) -> None:
        if isinstance(event, Kept) and event.version == at:
            raise Crash

    return stop


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A deployment that has crashed at version 5."""
    with pytest.raises(Crash):
        deploy(counted(), OWN, out=tmp_path / "run", watch=stopping(5), **BEGIN)
    return tmp_path / "run"


def test_a_fleet_without_authentication_is_refused_unless_that_is_intended(tmp_path: Path) -> None:
    plain = {name: value for name, value in BEGIN.items() if name != "insecure"}
    with pytest.raises(InputError, match=r"^nothing says that the nodes of this fleet prove who they are: give allow"):
        deploy(counted(), OWN, out=tmp_path / "run", **plain)
    assert not (tmp_path / "run").exists()
    simulated = InMemoryGrid.__new__(InMemoryGrid)
    for grid, options in (
        (counted(), Options(insecure=True)),
        (counted(), Options(by_key=True)),
        (simulated, Options()),
    ):
        assert authenticated(grid, options) is None
    with pytest.raises(InputError, match=r"allow is 'allowed', but nodes of Flower's simulation have no keys"):
        authenticated(simulated, Options(allow="allowed"))
    for wrong in ({"allow": "allowed"}, {"by_key": True}):
        with pytest.raises(InputError, match=r"insecure is True, but .* asks for nodes with keys"):
            Options(insecure=True, **wrong)


def test_only_nodes_on_the_allow_list_take_part(tmp_path: Path) -> None:
    allow = listed(tmp_path / "allowed", 0, 1, 2, 3)
    nodes = {each: FakeNode({"partition-id": each % 4}, adding, key=known_to_flower(each)) for each in range(5)}
    options = {**BEGIN, "insecure": False, "allow": allow}
    run = deploy(FakeGrid(nodes), OWN, out=tmp_path / "run", **options)
    log = run.node_log
    assert not nodes[4].sent and all(nodes[each].sent for each in range(4))
    assert log.query("kind == 'admitted'")["why"].to_list() == [
        f"its key is on the allow-list, as 'site {each}'" for each in log.query("kind == 'admitted'")["client"]
    ]
    (stranger,) = log.query("kind == 'refused'").itertuples()
    assert (
        stranger.node == f"key {fingerprint(known_to_flower(4))}" and stranger.why == "its key is not on the allow-list"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot read the allow-list .*: No such file"),
        ("", "has no keys: put the lines of the nodes' files .pub into it"),
        ("\nssh-rsa nonsense\n", "line 2 of the allow-list .* must be the public key of a node"),
        ("\x00\n", "line 1 of the allow-list"),
    ],
)
def test_a_wrong_allow_list_is_one_sentence(tmp_path: Path, text: str | None, sentence: str) -> None:
    file = tmp_path / "allowed"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=sentence):
        allowed_nodes(file)
    with pytest.raises(InputError, match=sentence):
        deploy(counted(), OWN, out=tmp_path / "run", **{**BEGIN, "insecure": False, "allow": file})
    assert not (tmp_path / "run").exists()


def test_only_keys_that_a_node_can_have_are_listed(tmp_path: Path) -> None:
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    (tmp_path / "allowed").write_bytes(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    with pytest.raises(InputError, match="line 1 of the allow-list"):
        allowed_nodes(tmp_path / "allowed")


def test_quarantine_by_hand_before_a_restart_survives_it(begun: Path, call: Call) -> None:
    assert call("quarantine", str(begun), "2", "--why", "odd updates").code == 0
    assert "Not carried out yet: partition 2, quarantine, odd updates (by " in call("quarantine", str(begun)).out
    grid = counted()
    with pytest.raises(Crash):
        deploy(grid, OWN, out=begun, watch=stopping(12), **{**BEGIN, "at_least": 3})
    assert not grid.nodes[2].sent and all(grid.nodes[each].sent for each in (0, 1, 3))
    assert not [*begun.glob("quarantine-*")]
    grid = counted()
    run = deploy(grid, OWN, out=begun, **{**BEGIN, "at_least": 3})
    assert run.status == "finished" and not grid.nodes[2].sent
    (row,) = run.node_log.query("kind == 'quarantined'").to_dict("records")
    assert (row["node"], row["client"]) == ("partition 2", 2) and row["why"].startswith("odd updates (by ")
    done = call("quarantine", str(begun))
    assert done.code == 0 and "odd updates" in done.out
    done = call("quarantine", str(begun), "2", "--release")
    assert done.code == 2 and "is finished: there is nothing to exclude a node from" in done.err


def test_a_quarantine_that_does_not_hold_any_more_is_said(
    begun: Path, call: Call, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It holds for a name, and now nodes have keys."""
    assert call("quarantine", str(begun), "2").code == 0
    with pytest.raises(Crash):
        deploy(counted(), OWN, out=begun, watch=stopping(9), **{**BEGIN, "at_least": 3})
    assert "does not hold" not in caplog.text
    nodes = {each: FakeNode({"partition-id": each}, adding, key=known_to_flower(each)) for each in range(4)}
    options = {**BEGIN, "insecure": False, "allow": listed(tmp_path / "allowed", 0, 1, 2, 3)}
    deploy(FakeGrid(nodes), OWN, out=begun, **options)
    assert "The quarantine of 'partition 2' does not hold: nodes are recognised by their keys now" in caplog.text


def test_nodes_do_not_get_a_second_privacy_budget_with_their_keys(tmp_path: Path) -> None:
    noisy = {**OWN, "privacy": {"clip": 1.0, "noise": 1.0, "delta": 1e-5, "bound": 0.5}}
    with pytest.raises(Crash):
        deploy(counted(), noisy, out=tmp_path / "run", watch=stopping(5), **BEGIN)
    nodes = {each: FakeNode({"partition-id": each}, adding, key=known_to_flower(each)) for each in range(4)}
    options = {**BEGIN, "insecure": False, "allow": listed(tmp_path / "allowed", 0, 1, 2, 3)}
    with pytest.raises(
        InputError, match=r"recognised by their keys.*'partition 0': start the app with the options that it had"
    ):
        deploy(FakeGrid(nodes), noisy, out=tmp_path / "run", **options)
    assert deploy(counted(), noisy, out=tmp_path / "run", **BEGIN).status == "finished"


def test_nodes_may_get_keys_before_a_privacy_budget_is_used(tmp_path: Path) -> None:
    noisy = {**OWN, "privacy": {"clip": 1.0, "noise": 1.0, "delta": 1e-5, "bound": 0.5}}
    grid = FakeGrid({each: FakeNode({"partition-id": each}, lambda message: None) for each in range(4)})

    def stop(event: Event) -> None:
        if all(node.sent for node in grid.nodes.values()):
            raise Crash

    with pytest.raises(Crash):
        deploy(grid, noisy, out=tmp_path / "run", watch=stop, **BEGIN)
    assert Run(tmp_path / "run").version == 0 and len(Run(tmp_path / "run").node_log) == 4
    nodes = {each: FakeNode({"partition-id": each}, adding, key=known_to_flower(each)) for each in range(4)}
    options = {**BEGIN, "insecure": False, "allow": listed(tmp_path / "allowed", 0, 1, 2, 3)}
    assert deploy(FakeGrid(nodes), noisy, out=tmp_path / "run", **options).status == "finished"


def test_quarantine_and_release_while_it_runs(tmp_path: Path, call: Call) -> None:
    out, grid = tmp_path / "run", counted()
    for node in grid.nodes.values():
        node.seconds = 0.02
    said: list[str] = []
    sent: list[int] = []

    def act(event: Event) -> None:
        if isinstance(event, Kept) and event.version in (5, 20):
            said.append(call("quarantine", str(out), "1", *(["--release"] if event.version == 20 else [])).out)
        if isinstance(event, Kept) and event.version in (12, 20):
            sent.append(len(grid.nodes[1].sent))

    run = deploy(grid, {**OWN, "aggregations": 40}, out=out, watch=act, **BEGIN)
    assert said[0].endswith("partition 1 is put into quarantine within a few seconds\n")
    assert said[1].endswith("partition 1 is released from quarantine within a few seconds\n")
    assert sent[0] == sent[1] < len(grid.nodes[1].sent)
    assert run.node_log["kind"].to_list()[-2:] == ["quarantined", "released"]
    assert set(run.tasks.query("outcome == 'refused'")["reason"]) <= {"its node is in quarantine"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["9"], "'9' is not a node of the run"),
        (["partition"], "'partition' is not a node of the run"),
        (["key abc"], "'key abc' is not a node of the run"),
        (["1", "--why", " "], "why is ' ', it must be a text of 1 to 500 characters"),
        (["--release"], "--release needs the NODE whose quarantine ends"),
    ],
)
def test_a_wrong_quarantine_is_one_sentence(begun: Path, call: Call, words: list[str], sentence: str) -> None:
    done = call("quarantine", str(begun), *words)
    assert done.code == 2 and sentence in done.err and not [*begun.glob("quarantine-*")]


def test_a_name_that_nobody_had_is_said(begun: Path, call: Call) -> None:
    """It may be that of a node that will come, or a typing error."""
    unseen = "; no node with this name has come so far\n"
    assert call("quarantine", str(begun), "partition 7").out.endswith(unseen)
    assert call("quarantine", str(begun), "partition 2").out.endswith("when the app is run again\n")
    with pytest.raises(Crash):
        deploy(counted(), OWN, out=begun, watch=stopping(9), **{**BEGIN, "at_least": 3})
    assert "partition 7" in set(Run(begun).node_log["node"])
    assert call("quarantine", str(begun), "partition 7", "--release").out.endswith(unseen)


def test_a_simulation_has_no_nodes(tmp_path: Path, call: Call) -> None:
    (run,) = runs_of(tmp_path / "runs", SMALL, 0)
    assert run.node_log.empty and "no log of nodes" in call("quarantine", str(run.folder)).out
    done = call("quarantine", str(run.folder), "1")
    assert done.code == 2 and "is a simulation" in done.err


def test_a_request_that_is_none_is_removed(begun: Path) -> None:
    for number, text in enumerate(("{", "[]", '{"node": 1, "why": "", "release": false}', "\xff")):
        (begun / f"quarantine-{number}.json").write_text(text, encoding="latin-1")
    run = deploy(counted(), OWN, out=begun, **BEGIN)
    assert run.status == "finished" and "quarantined" not in run.node_log["kind"].to_list()
    assert not [*begun.glob("quarantine-*")]


def test_a_request_is_only_removed_after_it_is_in_the_log(begun: Path, call: Call) -> None:
    """An app that ends while it reads the requests must not lose those that it has read."""
    assert call("quarantine", str(begun), "2").code == 0
    (begun / "quarantine-9.json").mkdir()  # it cannot be removed, which ends the app
    with pytest.raises(StoreError, match="cannot write the end of a request"):
        deploy(counted(), OWN, out=begun, **BEGIN)
    assert Run(begun).node_log.query("kind == 'quarantined'")["node"].to_list() == ["partition 2"]


def test_statements_that_are_cut_are_logged(tmp_path: Path) -> None:
    def boasting(message: Any) -> Any:
        arrays = message.content.array_records["arrays"]
        after = {name: each.numpy() for name, each in arrays.items()}
        return replied(message, after, 10**9, **{"num-steps": 10**6, "loss": 1e30})

    grid = counted()
    grid.nodes[3].answer = boasting
    log = deploy(grid, OWN, out=tmp_path / "run", **BEGIN).node_log.query("kind == 'bounded'")
    assert set(log["node"]) == {"partition 3"}
    assert set(log["why"]) == {"its number of examples", "its number of steps", "its loss"}


def changed(file: Path, what: str) -> None:
    """Does to the log what nobody may do."""
    lines = file.read_text().splitlines(keepends=True)
    place = len(lines) - 2
    if what == "changed":
        lines[place] = lines[place].replace("partition", "Partition")
    elif what == "removed":
        del lines[place]
    elif what == "swapped":
        lines[place - 1], lines[place] = lines[place], lines[place - 1]
    elif what == "cut off":
        del lines[place:]
    elif what == "emptied":
        lines = []
    if what == "deleted":
        file.unlink()
    else:
        file.write_text("".join(lines))


@pytest.mark.parametrize("what", ["changed", "removed", "swapped", "cut off", "emptied", "deleted"])
def test_a_log_that_was_changed_is_found(begun: Path, call: Call, what: str) -> None:
    assert call("runs", str(begun), "--verify").code == 0
    changed(begun / "nodes.jsonl", what)
    done = call("runs", str(begun), "--verify")
    assert done.code == 1 and "nodes.jsonl" in done.out
    for read in (lambda: Run(begun).node_log, lambda: deploy(counted(), OWN, out=begun, **BEGIN)):
        with pytest.raises(UnreadableError, match=r"is damaged: .*nodes\.jsonl"):
            read()


def test_a_log_whose_digests_were_computed_again_is_found(begun: Path, call: Call) -> None:
    """The database knows the last one."""
    meta = Run(begun).meta
    lines, head = nodelog.lines_of(begun, meta)
    (begun / "nodes.jsonl").unlink()
    forged = nodelog.NodeLog(begun, {"key": meta["key"]})
    for line in lines:
        forged.note(line.kind, line.node, line.client, f"{line.why}, honestly")
    forged.close()
    assert len(nodelog.lines_of(begun, {"key": meta["key"]})[0]) == head.lines
    done = call("runs", str(begun), "--verify")
    assert done.code == 1 and "lines of its nodes.jsonl are missing or changed: the database knows 4" in done.out


def test_the_log_of_another_run_is_found(begun: Path, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        deploy(counted(), OWN, out=tmp_path / "other", watch=stopping(5), **BEGIN)
    (begun / "nodes.jsonl").write_bytes((tmp_path / "other" / "nodes.jsonl").read_bytes())
    with pytest.raises(UnreadableError, match=r"line 1 of its nodes\.jsonl"):
        _ = Run(begun).node_log


def test_a_line_that_was_being_written_is_forgotten(begun: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = begun / "nodes.jsonl"
    whole = file.read_text()
    file.write_text(whole + '["2026-11-18T00:00:00+00:00", "quaran')
    before = Run(begun).node_log
    assert len(before) == 4
    run = deploy(counted(), OWN, out=begun, **BEGIN)
    assert run.node_log.query("kind == 'admitted'")["times"].to_list() == [2] * 4
    assert file.read_text().startswith(whole) and "quaran" not in file.read_text()
    assert f"The last line of {str(file)!r} is not whole and is left out" in caplog.text


def test_a_full_disk_is_one_sentence_also_when_the_log_is_closed(tmp_path: Path) -> None:
    log = nodelog.NodeLog(tmp_path, {"key": "a"})
    log.close()
    with pytest.raises(StoreError, match=r"cannot write its nodes\.jsonl .* the disk is full"), closing(log):
        log._stream = Path("/dev/full").open("ab")  # noqa: SIM115 (the log closes it)
        log.note("quarantined", "partition 1", 1, "by hand")


def test_names_in_a_log_can_be_shown_and_written(begun: Path, call: Call, tmp_path: Path) -> None:
    """JSON may hold half a character, which no file can."""
    (begun / "quarantine-1.json").write_text('{"node": "name \\ud800", "why": "\\ud800odd", "release": false}')
    with pytest.raises(Crash):
        deploy(counted(), OWN, out=begun, watch=stopping(9), **BEGIN)
    assert call("report", str(begun), "--out", str(tmp_path / "page.html")).code == 0
    assert Run(begun).node_log.query("kind == 'quarantined'")[["node", "why"]].to_numpy().tolist() == [["name", "odd"]]


def test_the_log_is_not_undone_by_a_rollback(begun: Path, call: Call) -> None:
    assert call("quarantine", str(begun), "2").code == 0
    with pytest.raises(Crash):
        deploy(counted(), OWN, out=begun, watch=stopping(9), **{**BEGIN, "at_least": 3})
    assert call("rollback", str(begun), "--version", "8").code == 0
    grid = counted()
    deploy(grid, OWN, out=begun, **{**BEGIN, "at_least": 3})
    assert not grid.nodes[2].sent and call("runs", str(begun), "--verify").code == 0


def test_a_flood_makes_few_lines(tmp_path: Path) -> None:
    log = nodelog.NodeLog(tmp_path, {"key": "a"})
    for _ in range(1000):
        log.note("refused", "partition 1", 1, "not finite")
    for each in range(5000):
        log.note("refused", f"key {each}", None, "its key is not on the allow-list")
    meta = {"key": "a", **log.head()}
    log.close()
    lines, head = nodelog.lines_of(tmp_path, meta)
    assert head.lines == len(lines) == 10 + 1000 + 12 and lines[9].times == 512
    assert (lines[-1].node, lines[-1].times) == ("other nodes", 2048)
    again = nodelog.NodeLog(tmp_path, meta)
    for _ in range(24):
        again.note("refused", "partition 1", 1, "not finite")
    again.note("refused", "key new", None, "its key is not on the allow-list")
    again.close()
    assert len(nodelog.lines_of(tmp_path, {"key": "a"})[0]) == head.lines


def test_a_log_that_nearly_cannot_be_read_gets_only_what_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodelog, "_FULL", 500)
    log = nodelog.NodeLog(tmp_path, {"key": "a"})
    for each in range(100):
        log.note("admitted", f"partition {each}", each, "any node is admitted")
    log.note("quarantined", "partition 1", 1, "by hand")
    meta = {"key": "a", **log.head()}
    log.close()
    lines, _ = nodelog.lines_of(tmp_path, meta)
    assert len(lines) < 6 and lines[-1].kind == "quarantined"


def test_the_page_shows_who_took_part(begun: Path, call: Call) -> None:
    assert call("quarantine", str(begun), "2", "--why", "<b>odd</b>").code == 0
    run = deploy(counted(), OWN, out=begun, **{**BEGIN, "at_least": 3})
    (section,) = [each for each in runs_page([run]).sections if each.name == "nodes"]
    nodes, decisions = section.tables
    assert [[*row[:3], *row[5:]] for row in nodes.rows] == [
        [f"partition {each}", f"{each}", "1" if each == 2 else "2", "yes" if each == 2 else "no"]
        for each in (int(row[1]) for row in nodes.rows)
    ]
    assert decisions.rows[0][:2] == ["quarantined", "partition 2"] and decisions.rows[0][2].startswith("<b>odd</b> (by")
    assert "In quarantine: partition 2." in section.remarks
    head = json.loads(json.dumps(run.meta["node_log"]))
    assert any(head["digest"] in remark for remark in section.remarks)
