"""The recording: the stamps of a run, as they were taken. Made where the cluster stands, evaluated by `summarise`."""

from pathlib import Path

import msgspec

from emulator.errors import WorkloadError


class LinkRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One node's end of a connection. Stamps are int64, CLOCK_MONOTONIC, in the order of the messages."""

    connection: int
    """Index into `Program.connections`."""
    sent_ns: bytes
    """When each message's send call began."""
    sizes: bytes
    """Bytes of each message sent; empty: all are the workload's payload."""
    received_ns: bytes
    """When each message was whole."""
    retransmissions: int
    """TCP packets sent again since the connection was made."""


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    ends_ns: bytes
    """int64 for each token: when the node ended it; 0 where it does not end on this node."""
    links: tuple[LinkRecord, ...]
    computed_ns: bytes = b""
    """int64, in pairs: when the node began to compute and when it had."""
    warm_up_ns: int = 0
    """How long the warm-up before the run took."""
    waited_ns: int = 0
    """How long the process was ready to run and waited for a processor, where the kernel counts that."""


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    start_ns: int
    """The common start."""
    ended_ns: int
    """When the last process had ended."""
    nodes: tuple[NodeRecord, ...]

    def save(self, path: Path) -> None:
        """Raises WorkloadError where the file cannot be written."""
        try:
            path.write_bytes(msgspec.msgpack.encode(self))
        except OSError as error:
            raise WorkloadError(f"cannot write the recording {path}: {error.strerror}; make room there") from None

    @classmethod
    def load(cls, path: Path) -> "Recording":
        """Raises WorkloadError where the file is missing or is no recording."""
        try:
            return msgspec.msgpack.decode(path.read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise WorkloadError(f"the run left no whole recording in {path}: {error}; run it again") from None
