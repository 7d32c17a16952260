"""What this kernel can do, found out by doing it where that is allowed and from the kernel's own lists elsewhere.

Nothing is guessed: `unknown` is an answer.
"""

import errno
import gzip
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from emulator import linux
from emulator.errors import EmuError
from emulator.fabric import netem, requests
from emulator.fabric.messages import ifinfmsg
from emulator.fabric.netlink import Netlink, Request
from emulator.plan.model import Shaping

NetemSupport = Literal["builtin", "module", "loaded", "absent", "unknown"]
"""builtin: part of the kernel, not in lsmod; loaded: a module that is loaded; module: one that can be loaded."""
Support = Literal["yes", "no", "unknown"]

_TRIAL = Shaping(delay_ns=1001, rate_bps=800_000_000_000, limit_packets=1, seed=1)


def netem_support() -> NetemSupport:
    """Whether netem is there, and how. As root it is tried in a namespace of its own, which may load the module."""
    tried = _try([Request(netem.message(requests.LOOPBACK_INDEX, _TRIAL), "netem")])
    if tried == "no":
        return "absent"
    if Path("/sys/module/sch_netem").exists():
        # Only what was loaded has a state.
        return "loaded" if Path("/sys/module/sch_netem/initstate").exists() else "builtin"
    if tried == "yes":
        return "builtin"
    return _listed("sch_netem", "CONFIG_NET_SCH_NETEM")


def namespace_support() -> Support:
    """Whether network namespaces can be made here, by this user."""
    return _try([])


def veth_support() -> Support:
    """Whether pairs of virtual interfaces can be made here, by this user."""
    message = ifinfmsg()
    message["header"]["type"] = requests.RTM_NEWLINK
    message["attrs"] = [("IFLA_IFNAME", "emu-trial"), ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "veth")]})]
    return _try([Request(message, "veth")])


def _try(trial: Sequence[Request]) -> Support:
    """Carry out requests in a namespace that ends with this call. `unknown` where this user may not make one."""
    try:
        with linux.network_namespace_kept():
            linux.unshare(linux.CLONE_NEWNET)
            with Netlink() as netlink:
                netlink.send(trial)
    except EmuError:
        return "no"
    except OSError as error:
        return "no" if error.errno in (errno.EINVAL, errno.ENOSYS) else "unknown"
    return "yes"


def _listed(module: str, option: str) -> NetemSupport:
    """What the lists beside the running kernel say of a module."""
    directory = Path("/lib/modules", platform.release())
    if _names(directory / "modules.builtin", module):
        return "builtin"
    if _names(directory / "modules.dep", module):
        return "module"
    try:
        configuration = gzip.decompress(Path("/proc/config.gz").read_bytes()).decode().splitlines()
    except OSError:
        return "unknown"
    if f"{option}=y" in configuration:
        return "builtin"
    # A module that was built, but that no list of this machine knows, may or may not be installed.
    return "unknown" if f"{option}=m" in configuration else "absent"


def _names(path: Path, module: str) -> bool:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return False
    return any(Path(line.partition(":")[0]).name.startswith(f"{module}.ko") for line in lines)
