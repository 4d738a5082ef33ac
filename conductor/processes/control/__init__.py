"""The processes of conductor and scheduler, put together."""
