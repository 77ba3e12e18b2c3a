"""`fairlag reference`: every key of an experiment file."""


def reference() -> None:
    """Print every key of an experiment file, and every partition, delay, availability and schedule, in Markdown."""
    from fairlag.report.reference import reference as page  # it describes the models, which needs torch

    print(page(), end="")
