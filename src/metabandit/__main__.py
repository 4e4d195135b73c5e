"""`python -m metabandit` is the command `metabandit`, where scripts are not on the path."""

from metabandit.cli import run

if __name__ == "__main__":
    run()
