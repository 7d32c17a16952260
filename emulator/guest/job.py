"""A request that a child of the agent answers: making the cluster, running a workload, reading the cables back.

In a process of its own, because it goes into other namespaces, may be ended, and must not hold up the agent. It sends
its frames through a pipe. What it needs is imported in the agent before the fork, so that the next job finds it there.
"""

import contextlib
import os
import select
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from emulator.guest.protocol import (
    ANSWER,
    PROGRESS,
    Control,
    Decoder,
    Done,
    End,
    Failed,
    Progress,
    encode,
    failure,
)

if TYPE_CHECKING:
    from emulator.guest.agent import Agent

Report = Callable[[str, float], None]
Work = Callable[[Report], bytes]
"""Does it, reporting progress, and returns the JSON of the answer."""


class Job:
    """A running job. `then` is called in the agent when it has gone well; `measures`: it is a workload."""

    def __init__(
        self,
        agent: "Agent",
        channel: int,
        work: Work,
        then: Callable[[], None] = lambda: None,
        measures: bool = False,
    ) -> None:
        self.agent = agent
        self.channel = channel
        self.then = then
        self.measures = measures
        self.decoder = Decoder()
        self.status: int | None = None
        self.answer: bytes | None = None
        self.pipe, end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                become(channel, work, end)
            finally:
                os._exit(70)
        os.close(end)
        os.set_blocking(self.pipe, False)
        agent.watch(self.pipe, select.POLLIN, self.pump)

    def pump(self) -> None:
        try:
            while data := os.read(self.pipe, 1 << 20):
                for frame in self.decoder.feed(data):
                    if frame.type == ANSWER:
                        self.answer = frame.payload
                    else:
                        self.agent.send(frame.type, self.channel, frame.payload)
        except BlockingIOError:
            return
        self.agent.forget(self.pipe)

    def write(self, data: bytes) -> None:
        """A job reads no standard input."""

    def control(self, order: Control) -> None:
        if isinstance(order, End):
            self.agent.end_session(self.pid, order.kill)

    def ended(self, status: int) -> None:
        self.pump()
        self.agent.forget(self.pipe)
        os.close(self.pipe)
        if self.answer is None:
            code = os.waitstatus_to_exitcode(status)
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
            self.agent.answer(self.channel, Failed("GuestError", f"what did it inside the guest ended with {how}"))
            return
        answer = msgspec.msgpack.decode(self.answer, type=Done | Failed)
        if isinstance(answer, Done):
            self.then()
        self.agent.answer(self.channel, answer)


def become(channel: int, work: Work, end: int) -> None:
    """In the new process: do the work and send what comes of it."""
    os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    signal.set_wakeup_fd(-1)
    os.closerange(3, end)
    os.closerange(end + 1, 1024)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)

    def send(kind: int, payload: msgspec.Struct) -> None:
        data = encode(kind, channel, payload)
        while data:
            data = data[os.write(end, data) :]

    answer: Done | Failed
    try:
        answer = Done(work(lambda what, share: send(PROGRESS, Progress(what, share))))
        status = 0
    except Exception as error:
        answer = failure(error)
        status = 1
    with contextlib.suppress(BrokenPipeError):
        send(ANSWER, answer)
    os._exit(status)
