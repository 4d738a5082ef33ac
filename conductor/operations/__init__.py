"""The operations, one file each; `operation_registry` finds them, `engine` moves them."""
