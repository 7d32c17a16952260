"""Every failure a person can meet: one class each, with its exit code and, in its message, what to do next.

The command line prints ``error: MESSAGE`` and exits with ``exit_code``; nothing below the command line prints or exits.
Messages end in what to do. Exceptions of libraries are translated where they are first met.
"""


class EmuError(Exception):
    """Anything that stops a command and is not a fault of emu itself."""

    exit_code = 1


class UsageError(EmuError):
    """The command was called in a way that makes no sense (click uses the same code)."""

    exit_code = 2


class SpecError(EmuError):
    """A file a person wrote is wrong: the message names file, line, column, what is wrong and what to write."""

    exit_code = 3


class PortLimitError(SpecError):
    """A node has more cables than its driver lets it use."""

    exit_code = 4


class PlaceError(EmuError):
    """The cluster cannot be made here: no root, no netem, no guest kernel, a host of another kind."""

    exit_code = 5


class FabricError(EmuError):
    """The kernel refused a step, or holds another value than the one that was asked for."""

    exit_code = 6


class ClusterError(EmuError):
    """No such cluster, one of that name stands already, or it is not in a state that allows this."""

    exit_code = 7


class GuestError(EmuError):
    """The guest kernel could not be built, did not boot, or ended."""

    exit_code = 8


class StalledError(GuestError):
    """Virtual time stood still for longer than the wall-clock limit: something spins without a system call."""

    exit_code = 9


class WorkloadError(EmuError):
    """A workload ended without a result: a message was lost or wrong, or a node's process ended."""

    exit_code = 10


class FidelityError(EmuError):
    """The run ended, but the host was overloaded: its figures are not to be trusted."""

    exit_code = 11


class VerifyError(EmuError):
    """The cluster was built, but a cable is not as it was requested: `emu verify` names it."""

    exit_code = 13


class StateError(EmuError):
    """The state directory or the cache cannot be used: full, read-only, or another user's."""

    exit_code = 12
