"""`python -m datp` is `datp`."""

from datp.cli.main import main

if __name__ == "__main__":
    main()
