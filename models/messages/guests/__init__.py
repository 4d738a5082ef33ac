"""The definition of a guest as it goes to its host, with its virtual hardware and disks."""
