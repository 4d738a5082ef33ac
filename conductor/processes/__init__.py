"""How each process is put together: the composition root, below the command line."""
