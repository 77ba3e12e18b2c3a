"""The addition to a Flower ClientApp that identifies its node: it answers the server's question for its name."""

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fairlag.runtime.flower.wire import CONFIG, GROUP, NAME, PARTITION


def introduced(app: ClientApp) -> ClientApp:
    """The same app, which also answers the question for its name, from the configuration of its node.

    `name`, or else `partition-id`, identifies the node, also after a restart; `group` is its group of clients.
    Everything else in the app is unchanged.

    >>> app = introduced(ClientApp())
    >>> @app.train()
    ... def train(message, context): ...
    """

    @app.query("fairlag")
    def introduce(message: Message, context: Context) -> Message:
        known = context.node_config
        answer = ConfigRecord()
        answer.update((key, known[key]) for key in (NAME, PARTITION, GROUP) if key in known)
        return Message(RecordDict({CONFIG: answer}), reply_to=message)

    return app
