"""The disks of guests: made, resized, saved, moved between hosts, and removed with proof."""
