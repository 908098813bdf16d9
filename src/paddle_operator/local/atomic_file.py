"""How is a file written so that whoever reads it finds the old text or the new, and never a part?"""

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str | bytes, mode: int = 0o600) -> None:
    """Whole or not at all, and at no moment readable by more people than `mode` says. Raises OSError.

    The file's unfinished form has a name of its own for each call: two threads that write the same file at once must
    not finish each other's.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    unfinished = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
            os.fchmod(descriptor, mode)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
