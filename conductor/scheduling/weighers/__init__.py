"""Weighers: which of the possible hosts is best; all are listed in `weigher_table`."""
