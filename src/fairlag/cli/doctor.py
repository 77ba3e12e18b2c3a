"""`fairlag doctor`: what this machine has, and a self-test that takes less than a minute."""

import json

import typer

from fairlag.cli.terminal import Json, err, show


def doctor(as_json: Json = False) -> None:
    """Show what this machine has (devices, data sets, extras) and test it: training, engines, worker processes."""
    from fairlag.lab import machine, selftest  # they import torch, which takes a second
    from fairlag.report import doctor as page

    here, done = machine.this_machine(), list[selftest.Check]()
    if not as_json:
        show(page.machine_page(here))
        show(page.heading("Self-test"))
    for name, run in selftest.checks():
        with err.status(f"{name} …"):
            done.append(run())
        if not as_json:
            show(page.check_line(done[-1]))
    passed = all(check.passed for check in done)
    if as_json:
        checks = [check._asdict() for check in done]
        print(json.dumps({"machine": here.as_json(), "checks": checks, "passed": passed}, indent=2))
    else:
        show(page.verdict(done))
    raise typer.Exit(0 if passed else 1)
