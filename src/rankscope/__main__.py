"""`python -m rankscope` is `rankscope`."""

from rankscope.cli.main import main

raise SystemExit(main())
