"""What the tests import and their source distribution leaves out."""

import contextlib
import io


@contextlib.contextmanager
def captured_stderr():
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        yield stream
