#!/bin/sh
# Install what emu needs on Debian 12: system packages (as root), a virtual environment in .venv, and the `emu` command.
# Idempotent: what is there already is left alone.
set -eu
cd "$(dirname "$0")/.."

# The guest kernel is built from Debian's source with Debian's tools; iproute2 and iperf3 serve the tests and benchmarks.
packages="python3-venv linux-source-6.12 flex bison bc make gcc libc6-dev patch xz-utils iproute2 iputils-ping iperf3"
missing=""
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing="$missing $package"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" -eq 0 ]; then
        echo "setup: installing$missing, which takes a minute or two"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        # shellcheck disable=SC2086  # a list of names
        apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
        echo "setup: these Debian packages are missing:$missing" >&2
        echo "setup: without them some of emu will not work; as root: apt-get install$missing" >&2
    fi
fi

# The nodes' names are put over this file; a system made by debootstrap has none.
if [ "$(id -u)" -eq 0 ] && [ ! -e /etc/hosts ]; then printf '127.0.0.1\tlocalhost\n' >/etc/hosts; fi

# The system's interpreter first: one in a home directory could not be read by other users.
python=${PYTHON:-}
for candidate in /usr/bin/python3.11 /usr/bin/python3 python3.13 python3.12 python3.11 python3; do
    [ -z "$python" ] || break
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$candidate; fi
done
[ -n "$python" ] || { echo "setup: no Python 3.11 or later; install python3 or set PYTHON=..." >&2; exit 1; }

# Remade when the dependencies or the place of the checkout have changed.
stamp=.venv/emu-setup-stamp
want="$(cksum pyproject.toml emulator/__init__.py) $(pwd)"
if [ "$(cat $stamp 2>/dev/null)" != "$want" ]; then
    echo "setup: making .venv with $python, which takes a minute or two"
    "$python" -m venv --clear .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
    echo "$want" >$stamp
fi

# `emu` by its bare name: for everybody as root (sudo's path has this directory), for oneself otherwise.
if [ "$(id -u)" -eq 0 ]; then bin=/usr/local/bin; else bin=$HOME/.local/bin; fi
if [ -L "$bin/emu" ] || [ ! -e "$bin/emu" ]; then
    if mkdir -p "$bin" 2>/dev/null && ln -sfn "$(pwd)/.venv/bin/emu" "$bin/emu" 2>/dev/null; then
        case ":$PATH:" in *":$bin:"*) ;; *) echo "setup: add $bin to your PATH to call emu by its name" ;; esac
    else
        echo "setup: $bin cannot be written: call .venv/bin/emu"
    fi
else
    echo "setup: $bin/emu is not ours and was left alone: call .venv/bin/emu"
fi
echo "setup: done, $(.venv/bin/emu --version)"
