"""`python -m model`: the same as `trifold`."""

from model.commands.app import main

if __name__ == "__main__":
    main()
