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
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "")


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
