"""What a host is made of, read from the files that describe it."""

from workers.inventory.files import ImportedHost, read_host_files
from workers.inventory.report import CpuSets

__all__ = ["CpuSets", "ImportedHost", "read_host_files"]
