"""The wire: what goes in comes out, however it is cut, and what is no frame is refused at once."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator import errors
from emulator.guest import protocol
from emulator.guest.protocol import (
    ANSWER,
    CONTROL,
    HEADER,
    MAGIC,
    MAX_PAYLOAD,
    REQUEST,
    STDERR,
    STDOUT,
    Answer,
    Control,
    Credit,
    Decoder,
    Exec,
    Exited,
    Failed,
    Frame,
    Opening,
    ProtocolError,
    encode,
    failure,
    rebuild,
    unpack,
)

frames = st.lists(
    st.builds(Frame, st.integers(1, STDERR), st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=8
)


@given(frames, st.lists(st.integers(1, 40), min_size=1))
def test_any_frames_cut_anywhere(sent: list[Frame], cuts: list[int]) -> None:
    data = b"".join(encode(*frame) for frame in sent)
    decoder = Decoder()
    got: list[Frame] = []
    at = turn = 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        got += decoder.feed(data[at : at + size])
        at += size
        turn += 1
    assert got == sent
    decoder.close()


@given(st.binary(min_size=1, max_size=64))
def test_garbage_is_an_error_or_held_and_never_grows(data: bytes) -> None:
    decoder = Decoder()
    try:
        list(decoder.feed(data))
    except ProtocolError:
        return
    assert len(decoder.held) <= len(data)
    if decoder.held:
        with pytest.raises(ProtocolError):
            decoder.close()


@pytest.mark.parametrize(
    "header",
    [
        HEADER.pack(MAGIC ^ 1, STDOUT, 1, 0),
        HEADER.pack(MAGIC, 0, 1, 0),
        HEADER.pack(MAGIC, STDERR + 1, 1, 0),
        HEADER.pack(MAGIC, STDOUT, 1, MAX_PAYLOAD + 1),
        HEADER.pack(MAGIC, STDOUT, 1, 2**32 - 1),
    ],
)
def test_a_header_that_cannot_be_is_refused_before_its_payload(header: bytes) -> None:
    with pytest.raises(ProtocolError, match="no frame of emu"):
        list(Decoder().feed(header))


def test_what_came_before_garbage_still_counts() -> None:
    frames = Decoder().feed(encode(STDOUT, 7, b"good") + b"garbage, and more of it")
    assert next(frames) == Frame(STDOUT, 7, b"good")
    with pytest.raises(ProtocolError):
        next(frames)


def test_a_frame_of_the_largest_size_passes() -> None:
    payload = bytes(MAX_PAYLOAD)
    assert list(Decoder().feed(encode(ANSWER, 1, payload))) == [Frame(ANSWER, 1, payload)]


def test_a_truncated_stream_is_an_error() -> None:
    decoder = Decoder()
    assert list(decoder.feed(encode(STDOUT, 1, b"whole") + encode(STDOUT, 1, b"cut")[:-1])) == [
        Frame(STDOUT, 1, b"whole")
    ]
    with pytest.raises(ProtocolError, match="ended within a frame"):
        decoder.close()


def test_requests_keep_bytes_that_are_no_text() -> None:
    request = Exec(
        node="n",
        argv=[b"\xff\xfe", b"", b"a b"],
        environment={b"\xff=": b"\x80"},
        directory=b"/\xff",
        umask=0o22,
        terminal=(24, 80),
    )
    (frame,) = Decoder().feed(encode(REQUEST, 3, Opening(request, 1.5)))
    assert unpack(frame.payload, Opening) == Opening(request, 1.5)


@pytest.mark.parametrize("message", [Credit(STDOUT, 5), protocol.End(kill=True), protocol.Signal(2)])
def test_controls(message: msgspec.Struct) -> None:
    (frame,) = Decoder().feed(encode(CONTROL, 3, message))
    assert unpack(frame.payload, Control) == message


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xc1", b"\x81\xa4type\xa3Foo", b"\xff" * 100])
def test_a_payload_of_another_kind_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(data, Answer)


@pytest.mark.parametrize(
    "error", [errors.ClusterError("no node 'x'"), errors.WorkloadError("n1: lost"), errors.StalledError("spins")]
)
def test_errors_keep_their_class_and_message(error: errors.EmuError) -> None:
    failed = unpack(msgspec.msgpack.encode(failure(error)), Answer)
    again = rebuild(failed)
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_a_fault_of_emu_says_where_it_is() -> None:
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as error:
        again = rebuild(failure(error))
    assert isinstance(again, errors.GuestError)
    assert "ZeroDivisionError: division by zero" in str(again)
    assert "test_protocol.py:" in str(again)


@pytest.mark.parametrize("name", ["SystemExit", "annotations", "NoSuchError"])
def test_no_other_class_is_made_from_a_name(name: str) -> None:
    assert type(rebuild(Failed(name, "x"))) is errors.GuestError


def test_exit_status() -> None:
    assert unpack(msgspec.msgpack.encode(Exited(137, 9)), Answer) == Exited(137, 9)
