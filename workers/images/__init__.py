"""Images on a host: fetched once, checked, kept as flat bases; and the store of snapshots."""
