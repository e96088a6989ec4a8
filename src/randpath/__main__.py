"""`python -m randpath`: the same as the command `randpath`."""

from randpath.commands.app import main

main()
