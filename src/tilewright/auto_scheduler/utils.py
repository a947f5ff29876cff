"""`auto_scheduler.utils.request_remote`, where the tutorials look for it.

In: a key.  Out: a session on a device of the farm.  Read next: `farm/session.py`.
"""

from tilewright.farm.session import request_remote

__all__ = ["request_remote"]
