"""The XML of a libvirt domain: written from a guest's definition, and read back; pure."""
