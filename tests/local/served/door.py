"""A TLS door of the embedded server: over plain HTTP a stock kubectl sends no token (see certificate.py).

Until the server opens one itself, this is done from outside, on its own runner, which ends it with the rest.
"""

import ssl
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from paddle_operator.local import certificate
from paddle_operator.local.server import LOOPBACK, ApiServer


async def secure_door(server: ApiServer, folder: Path) -> tuple[str, ssl.SSLContext]:
    """The address of the door, and what a client has to trust."""
    path = certificate.kept(folder, datetime.now(UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    before = len(server._runner.addresses)
    await web.TCPSite(server._runner, LOOPBACK, 0, ssl_context=context).start()
    port = server._runner.addresses[before][1]
    return f"https://{LOOPBACK}:{port}", ssl.create_default_context(cafile=path)
