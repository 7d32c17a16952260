"""`python -m emulator`: the same as `emu`."""

from emulator.cli.main import main

if __name__ == "__main__":
    main()
