"""What hosts report, which worker of a host is believed, and how operators act on hosts."""
