"""The hypervisor port and its adapters."""
