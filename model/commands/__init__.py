"""The one command, `trifold`: what it can be asked for, by subject; `app.py` puts it together."""
