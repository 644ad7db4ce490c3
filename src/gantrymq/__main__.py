"""``python -m gantrymq``: the command, where its console script is not on the path."""

from gantrymq.cli import run

if __name__ == "__main__":
    run()
