"""`python -m fairlag`: the same as the command `fairlag`."""

from fairlag.cli import main

if __name__ == "__main__":
    main()
