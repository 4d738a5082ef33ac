"""What a host is made of, read from the files that describe it."""

from workers.inventory.hardware_findings import CpuSets
from workers.inventory.host_descriptions import ImportedHost, read_host_files

__all__ = ["CpuSets", "ImportedHost", "read_host_files"]
