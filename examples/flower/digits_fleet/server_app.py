"""The server: any strategy of the experiment file, over Flower's Grid."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import fairlag
from digits_fleet.task import fleet
from fairlag.flower import KeeperAddress

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    experiment, secure = fleet(config["fleet"]).checked(aggregations=config["aggregations"]), None
    if config["keeper"]:
        keys = Path(str(config["keys"]))
        experiment = experiment.checked(privacy={"secure": True, "bound": 0.6})
        secure = KeeperAddress(str(config["keeper"]), keys / "server.key", keys / "keeper.pub")
    fairlag.deploy(
        grid,
        experiment,
        strategy=config["strategy"],
        out=str(config["out"]),
        at_least=config["at-least"],
        queued=config["queued"],
        by_key=config["by-key"],
        allow=str(config["allow"]) or None,
        insecure=config["insecure"],
        secure=secure,
    )
