"""The commands and the composition root."""

import typer

app = typer.Typer(no_args_is_help=True)


def main() -> None:
    """Run the command line."""
    app()
