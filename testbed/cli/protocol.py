"""`testbed protocol`: what the protocol does, drawn from traces of its own core."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.screen import stdout


def protocol(
    directory: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Where the pictures are written.")
    ] = Path(),
) -> None:
    """Draw a loss, a trim and a path's death from the core's traces.

    And the states of an EV. In each trace two queue pairs talk in virtual time while something
    happens to their packets.
    """
    from testbed.drawings import dialogue
    from testbed.drawings.protocol import draw_sequence, draw_states
    from testbed.model.errors import InputError

    pictures = (
        ("loss", dialogue.loss, "A packet is lost: the path is condemned, a backup takes over"),
        (
            "trim",
            dialogue.trim,
            "A switch trims a packet: it is repeated, the path is skipped once",
        ),
        ("path-death", dialogue.path_death, "A path is dead for two RTTs"),
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, happens, title in pictures:
            draw_sequence(happens(), title, directory / f"protocol-{name}.png")
        draw_states(directory / "protocol-ev-states.png")
    except OSError as error:
        what = f"a directory to write to ({error.strerror})"
        raise InputError.of("--output", str(directory), what) from None
    stdout().print(f"wrote {directory}/protocol-*.png")
