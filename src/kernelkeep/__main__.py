"""`python -m kernelkeep` is the `kernelkeep` command."""

import sys

from .cli import main

sys.exit(main())
