"""Images and disks as files, with a real qemu-img and real servers."""
