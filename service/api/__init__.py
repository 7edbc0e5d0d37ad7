"""The REST API: the same routes over tasks in this process and over tasks behind Serve handles."""
