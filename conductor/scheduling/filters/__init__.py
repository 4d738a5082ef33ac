"""Filters: which hosts are ruled out, and why; all are listed in `filter_table`."""
