"""The agent's side of one call: an answer that is opened as late as possible and ended exactly once."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Mapping

from aiohttp import web

from gateway.capture.answers import AnswerTape
from gateway.dialects.dialect import Reply
from gateway.ids import new_call_id
from gateway.proxy.raw_answer import LAST_CHUNK, Raw, chunk_of, fits, head_of

STALL_S = 120.0
"""An agent that reads nothing for so long is taken for one that left: it would hold a slot of the engine."""
SERVER = "model-gateway"
"""In the place of the versions of what this is built with."""
WAITS_ABOVE_BYTES = 32 * 1024
"""Below it (aiohttp's own mark is 64 kB) a write never waits."""


class AgentGone(Exception):
    """The agent closed its connection, or stopped reading."""


class AgentSide:
    """Until `opened`, an error can still be a plain HTTP answer."""

    def __init__(self, request: web.BaseRequest) -> None:
        self.call_id = call_id = new_call_id()
        self._request = request
        self._response: web.StreamResponse | None = None
        self._status = 200
        self.headers: dict[str, str] = {"x-request-id": call_id, "request-id": call_id, "Server": SERVER}
        self.first_write_at: float | None = None
        self.first_content_at: float | None = None
        self.last_byte_at: float | None = None
        self._loop = asyncio.get_running_loop()
        self.last_write_at = self._loop.time()
        """Loop time."""
        self._opening: asyncio.Lock | None = None
        self._chunked: asyncio.Transport | None = None
        """Where chunks may be written as they are: the head is out, and the body goes out in chunks."""
        self.told_late: Callable[[], Mapping[str, str]] = dict
        """Headers that are made when the answer opens."""
        self.tape: AnswerTape | None = None
        """Where the policy wants bodies kept: what the agent gets is noted here."""
        self.deaf = False
        """A write failed: the agent is gone."""

    @property
    def target(self) -> str:
        """What was asked for, as it came."""
        return self._request.raw_path

    @property
    def opened(self) -> bool:
        return self._response is not None

    def prepare(self, status: int, headers: Mapping[str, str]) -> None:
        """What the engine answered; goes out with the first event."""
        self._status = status
        self.headers |= headers

    def saw_content(self) -> None:
        if self.first_content_at is None:
            self.first_content_at = time.monotonic()

    async def write(self, data: bytes | bytearray) -> None:
        """Opens the answer where it is not open. Raises AgentGone."""
        if self.deaf:
            raise AgentGone
        try:
            response = self._response
            self.last_write_at = self._loop.time()
            if response is None or not response.prepared:
                response = await self._open()
            if self.tape is not None:
                self.tape.add(data)
            if self._chunked is not None:
                await self._put(self._chunked, chunk_of(data))
            elif self._backed_up(len(data)):
                async with asyncio.timeout(STALL_S):
                    await response.write(bytes(data))
            else:
                await response.write(bytes(data))
        except TimeoutError:
            self.deaf = True
            self.abort()
            raise AgentGone from None
        except (ConnectionError, OSError):
            self.deaf = True
            raise AgentGone from None

    def write_at_once(self, data: bytes | bytearray) -> bool:
        """The same where nothing has to be waited for. False: nothing was done, for `write` has to wait, to open the answer or to find the agent gone."""
        transport = self._chunked
        if transport is None or self.deaf or transport.is_closing() or transport.get_write_buffer_size() + len(data) > WAITS_ABOVE_BYTES:
            return False
        self.last_write_at = self._loop.time()
        if self.tape is not None:
            self.tape.add(data)
        transport.write(b"%x\r\n%b\r\n" % (len(data), bytes(data)))
        return True

    def pass_chunk(self, chunk: bytes) -> bool:
        """The same with what is framed already. Nothing is done where the answer is kept: what is kept is not framed."""
        transport = self._chunked
        if transport is None or self.deaf or self.tape is not None or transport.is_closing():
            return False
        if transport.get_write_buffer_size() + len(chunk) > WAITS_ABOVE_BYTES:
            return False
        self.last_write_at = self._loop.time()
        transport.write(chunk)
        return True

    async def _open(self) -> web.StreamResponse:
        if self._response is None and fits(self._request, self._status):
            transport, response = self._raw()
            transport.write(self._head(None, response))
            self._chunked = transport
            return response
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:  # an event and a comment may come at once
            opened = self._response
            if opened is None:
                opened = self._response = web.StreamResponse(status=self._status, headers={**self.headers, **self.told_late()})
                self.first_write_at = time.monotonic()
                await opened.prepare(self._request)
            return opened

    def _raw(self) -> tuple[asyncio.Transport, Raw]:
        """From here on aiohttp takes the answer for one that is out. Raises ConnectionError."""
        response = self._response = Raw(self._request.keep_alive)
        self.first_write_at = time.monotonic()
        self._request.writer.output_size += 1  # an answer has begun: nothing else may be said in its place
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError
        return transport, response

    def _head(self, length: int | None, response: Raw) -> bytes:
        return head_of(self._status, {**self.headers, **self.told_late()}, length=length, keep_alive=bool(response.keep_alive))

    async def _put(self, transport: asyncio.Transport, data: bytes) -> None:
        """Raises ConnectionError; TimeoutError where the agent does not read."""
        if transport.is_closing():
            raise ConnectionResetError
        transport.write(data)
        if transport.get_write_buffer_size() > WAITS_ABOVE_BYTES:
            async with asyncio.timeout(STALL_S):
                await self._request.writer.drain()

    def _backed_up(self, more: int) -> bool:
        """A write could wait for the agent to read."""
        transport = self._request.transport
        return transport is None or transport.get_write_buffer_size() + more > WAITS_ABOVE_BYTES

    async def end(self, data: bytes) -> web.StreamResponse:
        """The last bytes; they go out in one write with the end of the body."""
        if self._response is None:
            return await self._whole(self._status, data)
        if not self.deaf:
            if self.tape is not None:
                self.tape.add(data)
            try:
                if self._chunked is not None:
                    await self._put(self._chunked, chunk_of(data) + LAST_CHUNK)
                else:
                    async with asyncio.timeout(STALL_S):
                        await self._response.write_eof(data)
            except TimeoutError:
                self.abort()
            except (ConnectionError, OSError):
                self.deaf = True
        self.last_byte_at = time.monotonic()
        return self._response

    async def reply(self, reply: Reply, headers: Mapping[str, str] | None = None) -> web.StreamResponse:
        """A whole answer of our own, in the place of one that was never opened."""
        if self._response is not None:  # an answer that has begun can't become another one
            self.abort()
            return self._response
        self.headers |= {"Content-Type": reply.content_type, **reply.headers, **(headers or {})}
        return await self._whole(reply.status, reply.body)

    def abort(self) -> None:
        """Reset the connection: an answer whose usage could not be written may not look finished. Whatever is written now goes nowhere."""
        self.deaf = True
        transport = self._request.transport
        if transport is None:
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
        transport.abort()

    async def _whole(self, status: int, body: bytes) -> web.StreamResponse:
        self._status = status
        if self.tape is not None:
            self.tape.add(body)
        try:
            if fits(self._request, status):
                transport, raw = self._raw()
                await self._put(transport, self._head(len(body), raw) + body)
            else:
                response = self._response = web.Response(status=status, body=body, headers={**self.headers, **self.told_late()})
                async with asyncio.timeout(STALL_S):
                    await response.prepare(self._request)
                    await response.write_eof()
        except TimeoutError:
            self.abort()
        except (ConnectionError, OSError):
            self.deaf = True
        self.last_byte_at = time.monotonic()
        assert self._response is not None
        return self._response
