"""`python -m penstock.cli`, for where the `penstock` command is not on the path."""

from penstock.cli.main import main

if __name__ == "__main__":
    main()
