"""Change model files as a hostile author would, with a valid checksum."""

from zeroone.utils.storage import MODEL, read_tensors, write_tensors


def rewritten(path, change, kind=MODEL, to=None):
    """Call ``change(header, tensors)`` on a file's content, write it, and return the header."""
    header, tensors = read_tensors(path, kind, newest=99)
    change(header, tensors)
    write_tensors(to or path, kind, header, tensors)
    return header
