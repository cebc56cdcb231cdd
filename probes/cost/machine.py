"""What this machine is: what a measured time holds for."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, as far as it decides how long a prefill takes.

    Attributes:
        system: operating system and architecture, such as `Darwin arm64`.
        processor: the processor's name, such as `Apple M3 Max`; the architecture where the system tells none.
        cores: number of logical cores.
        memory_bytes: main memory; None where the system does not tell.
    """

    system: str
    processor: str
    cores: int
    memory_bytes: int | None

    @property
    def described(self) -> str:
        """The machine in a few words."""
        memory = "" if self.memory_bytes is None else f", {self.memory_bytes / 2**30:.0f} GB"
        return f"{self.processor} ({self.system}, {self.cores} cores{memory})"


def this_machine() -> Machine:
    """Return this machine. Nothing of it leaves it."""
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor() or platform.machine(),
        cores=os.cpu_count() or 1,
        memory_bytes=_memory(),
    )


def _processor() -> str:
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string")
    return processor_of(_read("/proc/cpuinfo"), board=_read("/proc/device-tree/model"))


def processor_of(cpuinfo: str, board: str = "") -> str:
    """Return the processor's name on Linux; empty where nothing tells it.

    On x86 that is the `model name`. On arm64 the kernel tells only who designed the cores and their numbers,
    so the board's name, where there is one, comes before them.

    Args:
        cpuinfo: text of `/proc/cpuinfo`, whose fields the kernel's `arch/*/kernel/cpuinfo.c` and
            `arch/x86/kernel/cpu/proc.c` write.
        board: text of `/proc/device-tree/model`.
    """
    fields: dict[str, dict[str, None]] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), {})[value.strip()] = None
    for name in ("model name", "Hardware"):
        if told := next(iter(fields.get(name, ())), ""):
            return told
    if told := board.strip("\0\n "):
        return told
    cores = [
        f"{name} {', '.join(fields[name])}" for name in ("CPU implementer", "CPU part") if name in fields
    ]
    return ", ".join(cores)


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _sysctl(name: str) -> str:
    try:
        done = subprocess.run(
            ["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
