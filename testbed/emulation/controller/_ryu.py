"""All that the controller uses of Ryu and eventlet, and what makes them run on today's Python.

Ryu 4.34 imports a name that eventlet has dropped; it is defined before Ryu is imported. Nothing
else is monkey-patched: the sockets and clocks of other code stay as they are. os-ken, OpenStack's
fork of Ryu, has everything used here under the same names.
"""

import logging
import os
import socket
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

os.environ["EVENTLET_NO_GREENDNS"] = "yes"  # slow to import, never used

with warnings.catch_warnings():
    # Users can do nothing about these: both libraries are older than what they are warned of.
    warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
    warnings.filterwarnings("ignore", category=DeprecationWarning, message="'cgi' is deprecated")
    warnings.filterwarnings("ignore", category=DeprecationWarning, message="distutils Version")
    warnings.filterwarnings("ignore", category=SyntaxWarning, message='"is not" with')
    import eventlet
    import eventlet.hubs
    import eventlet.wsgi

    if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
        eventlet.wsgi.ALREADY_HANDLED = object()

    from ryu import cfg
    from ryu.base.app_manager import AppManager
    from ryu.controller import handler, ofp_event
    from ryu.lib import hub
    from ryu.ofproto import ofproto_v1_3 as ofproto
    from ryu.ofproto import ofproto_v1_3_parser as parser

from testbed.sandbox.system_calls import new_socket_name

if TYPE_CHECKING:

    class RyuApp:
        """What this package uses of ryu.base.app_manager.RyuApp."""

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

        def start(self) -> Any:
            """Start to handle events; may return the application's main thread."""
else:
    from ryu.base.app_manager import RyuApp

__all__ = ["RyuApp", "hub", "ofproto", "parser"]  # what it hands on of Ryu as it is

DEAD = handler.DEAD_DISPATCHER
MAIN = handler.MAIN_DISPATCHER
events = ofp_event

Handler = TypeVar("Handler", bound=Callable[..., None])


def on(event: Any, *states: str) -> Callable[[Handler], Handler]:
    """Mark a method of an application as the handler of an event, or a list, in these states."""
    return cast("Callable[[Handler], Handler]", handler.set_ev_cls(event, list(states)))


class HubClock:
    """CLOCK_MONOTONIC, with a sleep during which the other green threads run."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """Sleep at least this long."""
        hub.sleep(seconds)


def wait_readable(fd: int) -> None:
    """Wait until a pipe or socket can be read, while the other green threads run."""
    eventlet.hubs.trampoline(fd, read=True)


def serve(path: Path, application: Callable[..., Any]) -> None:
    """Serve a WSGI application on a UNIX socket without end, while other green threads run."""
    with new_socket_name(path) as name:
        listener = eventlet.listen(name, socket.AF_UNIX)
    log = logging.getLogger("testbed.emulation.controller.live")
    eventlet.wsgi.server(listener, application, log=log, keepalive=False)


def run(module: str, port: int, **arguments: Any) -> Any:
    """Run the application of a module under Ryu until its main thread ends.

    Args:
        module: the name of the module that holds the application.
        port: TCP port on the loopback on which to listen for switches.
        **arguments: for the application's constructor.

    Returns:
        The application.

    Raises:
        OSError: the port cannot be listened on.
    """
    for name in ("ryu", "ofp_event"):
        logging.getLogger(name).setLevel(logging.WARNING)
    listen = ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(port)]
    cfg.CONF(args=listen, project="ryu", version="4.34")
    manager = AppManager.get_instance()
    manager.load_apps([module])
    manager.instantiate_apps(**arguments)
    apps = list(manager.applications.values())
    app = next(app for app in apps if type(app).__module__ == module)
    hub.sleep(0)  # the listener's turn
    if any(other.main_thread.dead for other in apps if other is not app):
        raise OSError(f"cannot listen on TCP port {port} of the loopback: see the log above")
    hub.joinall([app.main_thread])
    manager.close()
    return app
