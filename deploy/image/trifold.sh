#!/bin/sh
# The command `trifold` of the images, whose code stands in /app and is not installed.
exec /opt/venv/bin/python -m model "$@"
