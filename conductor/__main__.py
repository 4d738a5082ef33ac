"""Lets `python -m conductor` be the command `conductor`."""

from conductor.cli import main

if __name__ == "__main__":
    main()
