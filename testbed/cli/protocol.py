"""`testbed protocol`: pictures of the protocol, drawn from traces of its core."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.screen import stdout
from testbed.results.whole_file import writing


def protocol(
    directory: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Where to write the pictures.")
    ] = Path(),
) -> None:
    """Draw the protocol: a loss, a trim, a dead path, EV states.

    Each sequence is a trace of two queue pairs in virtual time.
    """
    from testbed.drawings import dialogue
    from testbed.drawings.protocol import draw_sequence, draw_states

    pictures = (
        ("loss", dialogue.loss, "A packet is lost: its EV is taken out, a backup takes over"),
        ("trim", dialogue.trim, "A packet is trimmed: it is sent again, its EV is skipped once"),
        ("path-death", dialogue.path_death, "A path is dead for two RTTs"),
    )
    with writing("--output", directory, "a directory to write to"):
        directory.mkdir(parents=True, exist_ok=True)
        for name, trace, title in pictures:
            draw_sequence(trace(), title, directory / f"protocol-{name}.png")
        draw_states(directory / "protocol-ev-states.png")
    stdout().print(f"wrote {directory}/protocol-*.png")
