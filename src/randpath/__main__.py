"""The command `randpath`, also `python -m randpath`: Ctrl-C while it loads its libraries ends it quietly too."""

import sys


def main() -> None:
    try:
        from randpath.commands.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
