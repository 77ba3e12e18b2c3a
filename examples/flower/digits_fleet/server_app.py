"""The server: any strategy of the experiment file, over Flower's Grid."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import fairlag
from digits_fleet.task import fleet

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    fairlag.deploy(
        grid,
        fleet(config["fleet"]).checked(aggregations=config["aggregations"]),
        strategy=config["strategy"],
        out=str(config["out"]),
        at_least=config["at-least"],
        queued=config["queued"],
        by_key=config["by-key"],
    )
