"""Print which lines run when modules are imported, as JSON: constants, classes and definitions.

Every test depends on them, so a record of the tests that happened to import a module first says
nothing. Arguments: the folder of the package, then folders in it.
"""

import importlib
import json
import sys
from pathlib import Path

import coverage


def main(source: Path, folders: list[str]) -> None:
    """Import all modules of some folders of a package."""
    measured = coverage.Coverage(data_file=None, config_file=False, source=[str(source)])
    measured.start()
    for folder in folders:
        for path in sorted((source / folder).rglob("*.py")):
            parts = path.relative_to(source.parent).with_suffix("").parts
            importlib.import_module(".".join(parts).removesuffix(".__init__"))
    measured.stop()
    data = measured.get_data()
    found = {
        str(Path(file).relative_to(source)): sorted(data.lines(file) or ())
        for file in data.measured_files()
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
