"""The entry point of the command `fairlag` and of `python -m fairlag`: an interrupt is clean from the start."""

import sys


def main() -> None:
    """Runs the command line; what it imports takes a while, and may be interrupted too."""
    try:
        from fairlag.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
