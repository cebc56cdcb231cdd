"""The command line: one thin module per subcommand, and the output formats."""
