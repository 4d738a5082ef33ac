"""Questions about decisions and capacity; nothing here is claimed."""
