"""The command that serves a model: a page to try it and POST /predict. torch is imported inside it."""

import ipaddress
import os
import socket
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from randpath.commands.reading import Threads, use_threads, warn
from randpath.errors import MissingExtra, UsageError, as_typed
from randpath.model import versions

TOKEN = "RANDPATH_TOKEN"


def serve(
    model: Path,
    *,
    port: Annotated[int, Parameter(validator=validators.Number(gte=0, lte=65535))] = 8000,
    host: str = "127.0.0.1",
    device: str = "cpu",
    threads: Threads = None,
) -> int:
    """Serve a model: a page to drop pictures on, and POST /predict. A new version is taken up without a restart.

    Only this machine can ask. With another --host a token is needed, in the environment variable RANDPATH_TOKEN;
    whoever asks sends it as `Authorization: Bearer TOKEN`. Put a server with TLS before it on any network.

    Parameters
    ----------
    model
        The model directory.
    port
        Where to listen; 0: one that is free.
    host
        The address to listen at.
    device
        cpu, cuda, cuda:1, mps.
    threads
        How many to use; default all cores.
    """
    token = os.environ.get(TOKEN, "")
    if not is_loopback(host) and len(token) < 16:
        raise UsageError(
            f"{host} can be reached from elsewhere: a token of at least 16 characters is needed",
            next=f"{TOKEN}=... {as_typed('serve', model, '--host', host)}",
        )
    versions.current(model)
    try:
        from randpath.commands.web import application, run
    except ImportError as error:
        raise MissingExtra("serve needs starlette and uvicorn: pip install 'randpath[serve]'") from error
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(
            f"cannot listen at {host}, port {port}: {error.strerror or error}", next="choose another --port"
        ) from error
    with listening:
        from randpath.model.asking import Asker

        use_threads(threads)
        asker = Asker(model, warn, device)
        shown = f"[{host}]" if ":" in host else host
        print(f"version {asker.version} of {model} answers at http://{shown}:{listening.getsockname()[1]}/", flush=True)
        run(application(asker, token if not is_loopback(host) else ""), listening)
    return 0


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
