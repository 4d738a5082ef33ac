"""Guests on libvirt and QEMU."""
