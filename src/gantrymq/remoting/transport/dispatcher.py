"""Dispatches requests to processors by code, with RocketMQ's answers for unknown codes and failures.

Source: NettyRemotingAbstract.processRequestCommand.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gantrymq.errors import DiskError, GantrymqError
from gantrymq.logs import get_logger
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import CommandRun, RemotingCommand
from gantrymq.remoting.connection import FindRun, FindRuns, split_run
from gantrymq.remoting.transport.channel import Channel

# An answer; None if it has been or will be sent by channel.respond.
Answer = RemotingCommand | None
Processor = Callable[[Channel, RemotingCommand], Answer | Awaitable[Answer]]
# Called before the processor. An answer ends the request (RPCHook, RequestPipeline).
RequestHook = Callable[[Channel, RemotingCommand], Answer]
# Called for a run in place of the hooks. False if one of them might end a request, so that each is asked.
RunHook = Callable[[Channel, CommandRun], bool]

MAX_UNDER_WAY_BYTES = 64 << 20  # limit for requests that are being answered, over all connections
_SMALL_REQUEST_BYTES = 4096
BUSY = "too many requests that are not answered yet, try again"

log = get_logger("gantrymq.remoting")


class RunLane(Protocol):
    """The lane for runs of requests, which costs less than an object for each of them."""

    @property
    def find(self) -> FindRun:
        """Finds the runs of the lane in received bytes."""
        ...

    def process(self, channel: Channel, run: CommandRun, /) -> Sequence[RemotingCommand]:
        """Take a run and send its answers. Returns the requests that it did not take, to be answered one by one.

        A run among them comes back to :meth:`process` once the answers of this one have left.
        """
        ...


class RequestRefused(Exception):
    """Raised by a processor: the answer to the request is this code and this remark.

    ``forbidden_type`` is RocketMQ's number for what is forbidden. Only the answer to a pull has it.
    """

    def __init__(self, code: int, remark: str | None = None, forbidden_type: int | None = None) -> None:
        super().__init__(remark)
        self.code, self.remark, self.forbidden_type = code, remark, forbidden_type

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        """The answer to a request."""
        return request.response(self.code, self.remark)


@dataclass(frozen=True)
class BodyLimits:
    """The largest body of a request in bytes: ``by_code``, else ``others``. ``key`` is the name of the setting."""

    others: int
    by_code: Mapping[int, int]
    key: str = "maxRequestBodyBytes"

    def max_bytes(self, code: int) -> int:
        """The largest body of a request with this code, in bytes."""
        return self.by_code.get(code, self.others)

    def wrong(self, request: RemotingCommand) -> str | None:
        """Why the body of a request is too large, or None."""
        max_bytes, size_bytes = self.max_bytes(request.code), request.refused_bytes or len(request.body)
        if size_bytes <= max_bytes:
            return None
        name = RequestCode._value2member_map_.get(request.code)
        shown = name.name if isinstance(name, RequestCode) else request.code
        return f"the body of {shown} has {size_bytes} bytes, more than {max_bytes} ({self.key})"


class RequestDispatcher:
    """A :class:`gantrymq.remoting.transport.channel.ChannelHandler` with a table of processors.

    ``when_closed`` is called for every closed channel. Without ``body_limits`` a body may be as large as a frame.
    ``run_hook`` answers for all ``hooks``.
    """

    def __init__(
        self,
        processors: dict[int, Processor] | None = None,
        *,
        hooks: Iterable[RequestHook] = (),
        run_hook: RunHook | None = None,
        lanes: Iterable[RunLane] = (),
        when_closed: Callable[[Channel], None] | None = None,
        body_limits: BodyLimits | None = None,
    ) -> None:
        self._processors = {int(code): processor for code, processor in (processors or {}).items()}
        self._hooks, self._run_hook = tuple(hooks), run_hook
        self._lanes = {lane.find.code: lane for lane in lanes}
        self._when_closed, self._body_limits = when_closed, body_limits
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way_bytes = 0
        self._later_runs: dict[Channel, list[CommandRun]] = {}

    def register(self, processor: Processor, *codes: int) -> None:
        """Register ``processor`` for these codes."""
        self._processors.update((int(code), processor) for code in codes)

    @property
    def max_body_bytes(self) -> Callable[[int], int] | None:
        """The limits for Connection; None without limits."""
        return self._body_limits.max_bytes if self._body_limits is not None else None

    @property
    def find_runs(self) -> FindRuns:
        """What finds runs for the lanes in received bytes."""
        runs: dict[int, list[FindRun]] = {}
        for lane in self._lanes.values():
            for code in lane.find.after:
                runs.setdefault(code, []).append(lane.find)
        return runs

    def connected(self, channel: Channel) -> None:
        """Do nothing."""

    def closed(self, channel: Channel, error: Exception | None) -> None:
        """Call ``when_closed``."""
        if self._when_closed is not None:
            self._when_closed(channel)

    def requests(self, channel: Channel, requests: list[RemotingCommand]) -> None:
        """Answer each request. Answers that are made at once keep the order of the requests."""
        if channel in self._later_runs:
            self._take(channel)
        for request in requests:
            if isinstance(request, CommandRun):
                self._run(channel, request)
            else:
                self._respond(channel, request, self._answer)

    def _respond(self, channel: Channel, request: RemotingCommand, answer_of: Processor) -> None:
        try:
            answer = answer_of(channel, request)
        except Exception as error:
            answer = failure(request, error)
        if isinstance(answer, RemotingCommand):
            _reply(channel, request, answer)
        elif answer is not None:
            self._begin(channel, request, answer)

    def _begin(self, channel: Channel, request: RemotingCommand, answer: Awaitable[Answer]) -> None:
        """Let an answer be sent later, unless the requests of such answers hold too much memory already.

        The limit is over all connections, closed ones included, because their requests are kept until their answers are
        made.
        """
        size_bytes = request.content_bytes
        if size_bytes > _SMALL_REQUEST_BYTES and self._under_way_bytes + size_bytes > MAX_UNDER_WAY_BYTES:
            if inspect.iscoroutine(answer):
                answer.close()
            _reply(channel, request, request.response(ResponseCode.SYSTEM_BUSY, BUSY))
            return
        self._under_way_bytes += size_bytes
        channel.begin_answer(size_bytes)
        task = asyncio.ensure_future(_later(channel, request, answer))
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._under_way_bytes -= size_bytes
            channel.end_answer(size_bytes)

        task.add_done_callback(done)

    def _run(self, channel: Channel, run: CommandRun) -> None:
        """Answer a run together, if none of its requests is refused. Hooks see each request once."""
        lane = self._lanes.get(run.code)
        if not self._hooks or (self._run_hook is not None and self._run_hook(channel, run)):
            requests = split_run(run) if lane is None else lane.process(channel, run)
            refusals = [self._body_refusal(request) for request in requests]
        else:
            requests = split_run(run)
            refusals = [self._refusal(channel, request) for request in requests]
            is_refused = any(refusal is not None for refusal in refusals)
            if not is_refused and lane is not None:
                requests = lane.process(channel, run)
                refusals = [None] * len(requests)
        for request, refusal in zip(requests, refusals, strict=True):
            if refusal is not None:
                _reply(channel, request, refusal)
            elif isinstance(request, CommandRun):
                self._take_later(channel, request)
            else:
                self._respond(channel, request, self._process)

    def _take_later(self, channel: Channel, run: CommandRun) -> None:
        """Take a part of a run, to which the hooks have agreed, in the turn of the event loop after the next.

        What was put until now is appended in the next turn, and its answers leave at the beginning of that turn. No
        other request of the channel overtakes the run.
        """
        self._later_runs.setdefault(channel, []).append(run)
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._take, channel)

    def _take(self, channel: Channel) -> None:
        for run in self._later_runs.pop(channel, ()):
            for request in self._lanes[run.code].process(channel, run):
                self._respond(channel, request, self._process)

    def _answer(self, channel: Channel, request: RemotingCommand) -> Answer | Awaitable[Answer]:
        refusal = self._refusal(channel, request)
        return self._process(channel, request) if refusal is None else refusal

    def _refusal(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """The answer to a request whose body is wrong, or that a hook refuses or fails at; None for another one."""
        wrong = self._body_refusal(request)
        if wrong is not None:
            return wrong
        try:
            for hook in self._hooks:
                refusal = hook(channel, request)
                if refusal is not None:
                    return refusal
        except Exception as error:
            return failure(request, error)
        return None

    def _body_refusal(self, request: RemotingCommand) -> RemotingCommand | None:
        if (request.body or request.refused_bytes) and self._body_limits is not None:
            wrong = self._body_limits.wrong(request)
            if wrong is not None:
                return request.response(ResponseCode.INVALID_PARAMETER, wrong)
        return None

    def _process(self, channel: Channel, request: RemotingCommand) -> Answer | Awaitable[Answer]:
        processor = self._processors.get(request.code)
        if processor is None:
            return request.response(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
            )
        return processor(channel, request)

    async def drain(self) -> None:
        """Wait until all answers under way are made."""
        while self._tasks or self._later_runs:
            await (asyncio.wait(self._tasks) if self._tasks else asyncio.sleep(0))


async def _later(channel: Channel, request: RemotingCommand, answer: Awaitable[Answer]) -> None:
    try:
        response = await answer
    except Exception as error:
        response = failure(request, error)
    if response is not None:
        _reply(channel, request, response)


def _reply(channel: Channel, request: RemotingCommand, response: RemotingCommand) -> None:
    try:
        channel.respond(request, response)
    except GantrymqError as error:
        channel.respond(request, failure(request, error))


def failure(request: RemotingCommand, error: Exception) -> RemotingCommand:
    """The answer to a request that raised ``error``: the refusal, or SYSTEM_ERROR. An unexpected error is logged."""
    if isinstance(error, RequestRefused):
        return error.answer(request)
    if not isinstance(error, GantrymqError):
        log.exception("a request failed", code=request.code, exc_info=error)
    elif isinstance(error, DiskError):
        log.error("a request failed at the disk", code=request.code, error=str(error))
    return request.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
