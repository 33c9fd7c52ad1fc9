"""Errors a person can act on: each says in one line what is wrong, where, and how to mend it.

The exit code of ``python -m mage`` is a property of the error's class, so that a script can tell a
wrong request (2) from a failed note (1) and from a busy output or device (3).
"""


class MageError(Exception):
    """Base of every error that Mage raises on purpose; its text is one line for a person."""

    exit_code = 1


class RequestError(MageError):
    """The request itself is wrong: an unknown name, a wrong type, an input no kernel may be given."""

    exit_code = 2


class BusyError(MageError):
    """Another process holds the output or the device; the text names the holder."""

    exit_code = 3


class EvidenceError(MageError):
    """An evidence file is missing, unreadable or does not match the schema."""


class ClaimError(MageError):
    """A number quoted in a note does not agree with the evidence it is quoted from."""


class NoteFailed(MageError):
    """A note could not be executed to its end, or what it left does not verify."""
