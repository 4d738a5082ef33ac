"""Guests on real libvirt and QEMU, on two hosts of one machine."""
