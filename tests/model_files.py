"""Model files changed by hand, as a hostile author would: the checksum is right."""

from zeroone.utils.storage import MODEL, read_tensors, write_tensors


def rewritten(path, change, kind=MODEL, to=None):
    """Call ``change(header, tensors)`` on a file's content, write it, and give the header."""
    header, tensors = read_tensors(path, kind, newest=99)
    change(header, tensors)
    write_tensors(to or path, kind, header, tensors)
    return header
