"""How is a file written so that every reader finds the old content or the new, and never a part?"""

import os
import tempfile
from pathlib import Path


def write_atomic(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Write the file completely or not at all; it never has wider permissions than `mode`. Raises OSError.

    Each call has its own temporary file: two threads that write the same path must not rename each other's.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            os.fchmod(descriptor, mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
