"""The `glocal` command: one file per subcommand, each a thin call into the library.

- a subcommand's module is imported when it is asked for, and none of them imports torch,
  transformers or pyarrow before it has work to do, so that `glocal --help` answers at once;
- data goes to stdout, everything else (progress, messages, errors) to stderr;
- an error is one block without a traceback, unless `--debug` is given.
"""

from glocal.cli.group import app, main

__all__ = ["app", "main"]
