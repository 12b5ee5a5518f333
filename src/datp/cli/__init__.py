"""The command line. Modules are imported when a command needs them, so that `datp --help` is quick."""
