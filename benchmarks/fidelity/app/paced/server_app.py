"""The server: the experiment file, deployed over Flower's Grid."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import fairlag

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    fairlag.deploy(
        grid,
        str(config["experiment"]),
        out=str(config["out"]),
        at_least=config["at-least"],
        queued=config["queued"],
        by_key=True,
        allow=str(config["allow"]) or None,
    )
