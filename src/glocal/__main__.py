"""`python -m glocal` is the `glocal` command."""

from glocal.cli import main

if __name__ == "__main__":
    main()
