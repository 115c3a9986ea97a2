"""`python -m livi` is the command `livi`."""

import sys

from livi.cli import main

if __name__ == "__main__":
    sys.exit(main())
