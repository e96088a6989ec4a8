"""Make every table and picture of the pages anew from the recorded results: `make tables`; with --check, only look."""

import sys
from pathlib import Path

from randpath.paper.show import page
from randpath.report.marked import pages, with_tables
from randpath.report.pictures import pictures
from randpath.storage import checkpoint


def renewed(root: Path) -> dict[Path, str]:
    """Each generated file as the recorded results have it."""
    results = root / "docs" / "results"
    own = root / "docs" / "paper.md"  # made whole
    texts = {file: with_tables(file.read_text(encoding="utf-8"), results) for file in pages(root) if file != own}
    texts |= {root / "docs" / "figures" / name: text for name, text in pictures(results).items()}
    return texts | page(root)


def main() -> None:
    texts = renewed(Path())
    stale = [file for file, text in texts.items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    if "--check" not in sys.argv:
        for file in stale:
            checkpoint.replace_file(file, texts[file].encode())
    print(f"renewed: {', '.join(map(str, stale))}" if stale else "all tables and pictures are current")
    if stale and "--check" in sys.argv:
        sys.exit(1)


if __name__ == "__main__":
    main()
