"""``python -m semistream``: the command line, where the installed script is not on the PATH."""

from semistream.cli.main import run

if __name__ == "__main__":
    run()
