"""Terminates TLS in front of the tests' PostgreSQL server, whose build has no TLS
(``pg_config --configure``).

The proxy speaks the server's part of the negotiation: it accepts the client's request
for encryption and then passes bytes on. So the driver's checks of certificate and host
name run as with a server that has TLS.
"""

import asyncio
import queue
import secrets
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_REQUEST_FOR_TLS = struct.pack("!ii", 8, 80877103)
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Certificates:
    """Files of an authority and of a server's certificate for the loopback address."""

    authority: Path
    server: Path


def make_certificates(folder: Path) -> Certificates:
    """Makes an authority and a certificate that it signed."""
    authority_key, server_key = (
        ec.generate_private_key(ec.SECP256R1()) for _ in range(2)
    )
    issuer = f"authority {secrets.token_hex(4)}"
    authority = _certificate(
        issuer, authority_key.public_key(), issuer=issuer, signed_with=authority_key
    )
    server = _certificate(
        "server", server_key.public_key(), issuer=issuer, signed_with=authority_key
    )
    key = server_key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    folder.mkdir()
    files = Certificates(folder / "authority.pem", folder / "server.pem")
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    files.server.write_bytes(server.public_bytes(serialization.Encoding.PEM) + key)
    return files


@contextmanager
def tls_proxy(port: int, certificates: Certificates) -> Iterator[int]:
    """Runs a proxy to a port of the loopback address; gives the port of the proxy."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    ports, loop, stop = queue.Queue[int](), asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(
        target=loop.run_until_complete,
        args=(_serve(port, context, ports, stop),),
        daemon=True,
    )
    thread.start()
    try:
        yield ports.get(timeout=30)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=30)
        loop.close()


async def _serve(
    port: int, context: ssl.SSLContext, ports: "queue.Queue[int]", stop: asyncio.Event
) -> None:
    """Serves connections until ``stop`` is set, then ends them."""
    connections = set[asyncio.Task[None]]()

    async def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        with suppress(OSError, EOFError, asyncio.CancelledError):
            await _connect(reader, writer, port, context)
        writer.close()

    async with await asyncio.start_server(connected, _HOST, 0) as server:
        ports.put(server.sockets[0].getsockname()[1])
        await stop.wait()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
    await asyncio.sleep(0)  # transports that were closed end in the next turn


async def _connect(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    port: int,
    context: ssl.SSLContext,
) -> None:
    if await reader.readexactly(8) != _REQUEST_FOR_TLS:
        return  # a client that speaks in plain is not passed on
    writer.write(b"S")
    await writer.drain()
    await writer.start_tls(context)
    from_server, to_server = await asyncio.open_connection(_HOST, port)
    try:
        await asyncio.gather(_pass_on(reader, to_server), _pass_on(from_server, writer))
    finally:
        to_server.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


def _certificate(
    name: str,
    public_key: ec.EllipticCurvePublicKey,
    *,
    issuer: str,
    signed_with: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.BasicConstraints(ca=name == issuer, path_length=None), critical=True
        )
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address(_HOST))]),
            critical=False,
        )
        .sign(signed_with, hashes.SHA256())
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
