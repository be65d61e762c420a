"""Options that several commands share, declared once."""

import inspect
from collections.abc import Callable
from typing import Any

Command = Callable[..., None]


def with_options(declare: Callable[..., Any], name: str) -> Callable[[Command], Command]:
    """Decorate a command one of whose parameters stands for several options.

    On the command line the parameters of `declare` take its place. The command is given what
    `declare` returns for them.

    Args:
        declare: its parameters are the options, as Typer reads them.
        name: the parameter of the command that it makes.
    """
    shared = inspect.signature(declare).parameters

    def decorate(command: Command) -> Command:
        own = inspect.signature(command).parameters

        def call(**arguments: Any) -> None:
            group = declare(**{option: arguments.pop(option) for option in shared})
            command(**arguments, **{name: group})

        place = list(own).index(name)
        parameters = [*own.values()]
        keyword_only = inspect.Parameter.KEYWORD_ONLY
        parameters[place : place + 1] = [
            option.replace(kind=keyword_only) for option in shared.values()
        ]
        call.__name__, call.__doc__ = command.__name__, command.__doc__
        call.__annotations__ = {option.name: option.annotation for option in parameters}
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return call

    return decorate
