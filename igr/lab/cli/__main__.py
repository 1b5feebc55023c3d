"""`python -m igr.lab.cli`: the `igr` command."""

from igr.lab.cli.main import main

if __name__ == "__main__":
    main()
