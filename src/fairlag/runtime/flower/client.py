"""What a Flower ClientApp adds so that its node is known again: it says who it is when it is asked."""

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fairlag.runtime.flower.wire import CONFIG, GROUP, NAME, PARTITION


def introduced(app: ClientApp) -> ClientApp:
    """The same app, which answers the question who it is by the configuration of its node.

    `name` or, without one, `partition-id` is what the node is known by, also after a restart; `group` is the group of
    clients that it belongs to. All else in the app stays as it is.

    >>> app = introduced(ClientApp())
    >>> @app.train()
    ... def train(message, context): ...
    """

    @app.query("fairlag")
    def introduce(message: Message, context: Context) -> Message:
        config = context.node_config
        told = ConfigRecord()
        told.update((key, config[key]) for key in (NAME, PARTITION, GROUP) if key in config)
        return Message(RecordDict({CONFIG: told}), reply_to=message)

    return app
