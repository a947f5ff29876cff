"""What a farm takes from whoever reaches its ports: every bound and every deadline.

In: nothing.  Out: numbers, and the texts that a name may be.  `docs/reliability.md` has them as a
table, which a test compares.  Bounds of single fields of messages are beside them, in `wire.py`.
Read next: `admission.py` (who may stay), `plain_comm.py` (how bytes are read).
"""

from __future__ import annotations

# -- connections, of one process ----------------------------------------------------------------
STRANGERS = 1024  # that have not said who they are
STRANGERS_OF_ADDRESS = 512
STRANGER_SECONDS = 10.0  # to shake hands and to say who they are
TUNERS = 512  # at a tracker
TUNERS_OF_ADDRESS = 256
DEVICES = 1024  # at a tracker, two connections each
VISITORS = 64  # at a device
VISITORS_OF_ADDRESS = 48
VISITOR_SECONDS = 600.0  # without a word, while nothing runs for it
OWN_FILES = 64  # descriptors that a process needs for itself
BEAT_SECONDS = 120.0  # between two signs of life of a device on one connection
STREAM_SECONDS = 300.0  # the same on the connection by which it registered

CONNECT_SECONDS = 5.0  # until a tracker or a device that is asked has said Hello
DEAF_SECONDS = 10.0  # without an answer of the tracker a tuner connects again
SILENT_SECONDS = 4.0  # a device that says nothing for so long is given to nobody
GONE_SECONDS = 300.0  # and then is forgotten
AGAIN_SECONDS = 2.0  # without a sign of life, until another may take its address
OWNER_SECONDS = 15.0  # a tuner or a session that says nothing for so long loses its devices

# -- messages -----------------------------------------------------------------------------------
FRAMES = 64  # of one message
STRANGER_BYTES = 256 << 10  # of a message of somebody who has not said who it is
TRACKER_BYTES = 1 << 20  # of a message to a tracker
MESSAGE_BYTES = 65 << 20  # of any other
WHOLE_BYTES = 64 << 20  # of an artefact or a candidate in it
PART_BYTES = 8 << 20  # of a file that is sent in parts
MESSAGE_SECONDS = 30.0  # until a message that has begun is there, and a second more for each
MESSAGE_BYTES_A_SECOND = 256 << 10  # so many bytes of it
UNREAD_BYTES = 4 << 20  # of a tracker's answers, that the other side does not take
UNREAD_DEVICE_BYTES = 64 << 20  # of a device's
BATCH = 1000  # notes of a device to its tracker in one message

# -- what is asked for --------------------------------------------------------------------------
KEYS = 16  # that one tuner wants devices of
WITHOUT = 1000  # devices that it does not want
BEAT_PAUSE = 0.1  # seconds; a sign of life that comes sooner changes nothing

# -- files and processes of a device --------------------------------------------------------------
INCOMING = 4  # files of one visitor that are on their way
SESSION_FILES = 256  # of one session
SESSION_BYTES = 8 << 30
SESSIONS_BYTES = 16 << 30  # of all sessions of a device
STORED_FILES = 4096  # that are known by their hash; those used longest ago go
STORED_BYTES = 8 << 30
STORED_FOLDERS = 256  # of references
FREE_BYTES = 256 << 20  # that a file leaves free on the disk
WRITTEN_BYTES = 4 << 30  # of one file that a kernel's process writes
PROCESSES = 512  # of it, threads included, besides those that there are
HELD = 65_536  # arrays, modules and networks of one session

LOGGED = 50  # warnings of one kind of a tracker or a device
LOGGED_SECONDS = 10.0  # in which so many are written, the rest is counted

# -- text ---------------------------------------------------------------------------------------
NAME_LENGTH = 200
# Without control characters, and without what turns a line around or ends it.
PLAIN = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]*\Z"
