"""The entry point of the command `fairlag` and of `python -m fairlag`: handles interrupts from the start."""

import sys

from fairlag.lab.ending import shortage, terminated_cleanly


def main() -> None:
    """Runs the command line; its imports take a while, and may be interrupted too."""
    try:
        with terminated_cleanly():
            from fairlag.cli import main as run

            run()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if (why := shortage(error)) is None:
            raise
        print(f"fairlag: {why}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
