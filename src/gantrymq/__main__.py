"""``python -m gantrymq``: the command, for when its console script is not on the PATH."""

from gantrymq.cli import run

if __name__ == "__main__":
    run()
