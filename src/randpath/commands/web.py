"""What `serve` answers over HTTP. The only file that imports starlette and uvicorn."""

import asyncio
import base64
import hashlib
import hmac
import io
import pathlib
import queue
import re
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from randpath.data.decode import PictureError
from randpath.model.asking import Asker

MOST_BYTES = 20_000_000  # of one picture file
SECONDS = 30.0  # that one request may take, from its first byte to its answer
MOST_TOP = 1000
HOSTS = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?")
PAGE = (pathlib.Path(__file__).parent / "serve.html").read_text(encoding="utf-8")


def application(asker: Asker, token: str = "") -> Starlette:
    """The page, /predict, /health and /openapi.json; with a token for whoever knows it, else for this machine alone."""

    async def page(request: Request) -> Response:
        return HTMLResponse(PAGE)

    async def health(request: Request) -> Response:
        return JSONResponse({"ok": True, "version": asker.version, "classes": len(asker.model.names)})

    async def openapi(request: Request) -> Response:
        return JSONResponse(description())

    async def predict(request: Request) -> Response:
        try:
            async with asyncio.timeout(SECONDS):
                return await _predicted(asker, request)
        except TimeoutError:
            return _error(503, f"there was no answer within {SECONDS:.0f} seconds", "try again later")

    routes = [
        Route("/", page),
        Route("/health", health),
        Route("/openapi.json", openapi),
        Route("/predict", predict, methods=["POST"]),
    ]

    async def guarded(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        refused = _refusal(request, token)
        answer = refused if refused is not None else await go_on(request)
        answer.headers.update(HEADERS)
        return answer

    return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=guarded)])


async def _predicted(asker: Asker, request: Request) -> Response:
    top, nearest = request.query_params.get("top", "1"), request.query_params.get("nearest") == "1"
    if not top.isdecimal() or not 1 <= int(top) <= MOST_TOP:
        return _error(400, f"top must be a number from 1 to {MOST_TOP}")
    data = await _body(request)
    if data is None:
        return _error(413, f"a picture may have at most {MOST_BYTES:,} bytes")
    try:
        answer = await run_in_threadpool(asker.ask, data, int(top), nearest)
        one = await asyncio.wrap_future(answer)
    except PictureError as error:
        return _error(413 if error.kind == "too large" else 422, error.fault)
    except queue.Full:
        return _error(503, "too many pictures are waiting", "try again later")
    version = one.pop("version")
    if one.get("nearest"):
        one["nearest"] = {"label": one["nearest"]["label"], "picture": _picture(one["nearest"]["pixels"])}
    file = request.query_params.get("file", "picture")
    return JSONResponse({"predictions": [{"file": file, **one}], "version": version})


async def _body(request: Request) -> bytes | None:
    """What was sent; none if it is too long, told before the rest of it is read."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MOST_BYTES:
        return None
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > MOST_BYTES:
                return None
            parts.append(part)
    except ClientDisconnect:
        return b""
    return b"".join(parts)


def _refusal(request: Request, token: str) -> Response | None:
    """Why this request is not answered, or none."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        return _error(403, "asked by a page of another site")
    if not token:
        # A page elsewhere can have its name lead to this machine; its requests then name it as the host.
        return (
            None if HOSTS.fullmatch(host) else _error(403, f"this server is for this machine alone, not for {host!r}")
        )
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if request.url.path in ("/", "/health") or hmac.compare_digest(given.encode(), token.encode()):
        return None
    return _error(401, "the token is missing or wrong", "send the header Authorization: Bearer TOKEN")


def _error(status: int, what: str, next_: str = "") -> Response:
    return JSONResponse({"error": what, "where": "", "kept": "", "next": next_}, status)


def _picture(pixels: Any) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _policy() -> str:
    """Our style and our script by their hash, pictures of the page itself, questions to this server, no more."""
    digests = []
    for tag in ("style", "script"):
        text = PAGE.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digests.append(base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())
    return (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


HEADERS = {
    "Content-Security-Policy": _policy(),
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def description() -> dict[str, Any]:
    """OpenAPI 3.1, for programs that make clients of it."""
    rank = {"label": {}, "confidence": {"type": "number", "minimum": 0, "maximum": 1}}
    ranked = {"type": "array", "items": {"type": "object", "properties": rank}}
    nearest = {"type": ["object", "null"], "properties": {"label": {}, "picture": {"type": "string"}}}
    one = {"file": {"type": "string"}, **rank, "unknown": {"type": "boolean"}, "top": ranked, "nearest": nearest}
    listed = {"type": "array", "items": {"type": "object", "properties": one}}
    answer = {"type": "object", "properties": {"predictions": listed, "version": {"type": "integer"}}}
    fault = {"type": "object", "properties": {key: {"type": "string"} for key in ("error", "where", "kept", "next")}}
    health = {"ok": {"type": "boolean"}, "version": {"type": "integer"}, "classes": {"type": "integer"}}
    meanings = {
        400: "a parameter is wrong", 401: "the token is missing or wrong", 403: "asked from elsewhere",
        413: "the picture is too large", 422: "this is no picture", 503: "busy",
    }  # fmt: skip
    faults = {str(status): _content(what, fault) for status, what in meanings.items()}
    parameters = [
        _parameter("top", "how many classes to name", {"type": "integer", "minimum": 1, "maximum": MOST_TOP}),
        _parameter("nearest", "1: with the nearest stored picture", {"type": "string"}),
        _parameter("file", "a name, sent back", {"type": "string"}),
    ]
    post = {
        "summary": "What is in a picture",
        "parameters": parameters,
        "requestBody": {"required": True, "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}},
        "responses": {"200": _content("as `randpath predict --json` prints it", answer), **faults},
    }
    get = {"responses": {"200": _content("it answers", {"type": "object", "properties": health})}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "randpath serve", "version": "1"},
        "paths": {"/predict": {"post": post}, "/health": {"get": get}},
    }


def _content(what: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": what, "content": {"application/json": {"schema": schema}}}


def _parameter(name: str, what: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": what, "schema": schema}


def run(app: Starlette, listening: socket.socket) -> None:
    """Answer until Ctrl-C; what is being answered then is still answered."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, ws="none", limit_concurrency=1000, timeout_keep_alive=10,
        timeout_graceful_shutdown=5, server_header=False, lifespan="off",
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listening])
