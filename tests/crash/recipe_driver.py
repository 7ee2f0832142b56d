"""A driver that is there to be killed: it runs the program of docs/spark.md over and over.

    python -m tests.crash.recipe_driver ENDPOINT FOLDER ROWS

The program stores batches of ROWS messages of `sensors/#` in the table FOLDER/srv/tables/hot and
publishes them to `hot/#`.
"""

import re
import sys
import time
from pathlib import Path

from penstock.spark.session import session

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def program() -> str:
    """Return the program below its heading."""
    _, _, text = PAGE.read_text().partition("\n### From topic to table to topic\n")
    found = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def main() -> None:
    """Run until killed."""
    endpoint, folder, rows_max = sys.argv[1:]
    text = program()
    for said, meant in (
        ("127.0.0.1:7090", endpoint.removeprefix("grpc://")),
        ("/srv", f"{folder}/srv"),
        ("100_000", rows_max),
    ):
        assert said in text, said
        text = text.replace(said, meant)
    code = compile(text, "docs/spark.md", "exec")
    spark = session("killed", master="local[2]", short=True)
    while True:
        exec(code, {"spark": spark})  # noqa: S102
        time.sleep(0.1)


if __name__ == "__main__":
    main()
