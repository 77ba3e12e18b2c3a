"""`fairlag reference`: every key of an experiment file."""


def reference() -> None:
    """Every key of an experiment file, every partition, delay, availability and schedule, in Markdown."""
    from fairlag.report.reference import reference as page  # it describes the models, which takes torch

    print(page(), end="")
