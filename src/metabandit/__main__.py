"""`python -m metabandit` is the command `metabandit`, where scripts are not on the path."""

from metabandit.cli import main

if __name__ == "__main__":
    main(prog_name="python -m metabandit")
